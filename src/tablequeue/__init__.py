"""Queues in the database you already have, pipelines on Spark."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tablequeue import errors
    from tablequeue.consumer import Consumer
    from tablequeue.database import Database, connect
    from tablequeue.errors import Cancelled, Empty, LeaseLost, TablequeueError
    from tablequeue.model.attempts import AttemptError
    from tablequeue.model.batch import BatchProgress, OnDead
    from tablequeue.model.connection import Connection
    from tablequeue.model.definition import (
        Definition,
        Delivery,
        History,
        Keep,
        Order,
        PayloadType,
        SubscriptionDefinition,
        TopicDefinition,
    )
    from tablequeue.model.message import Claim, Message, NewMessage
    from tablequeue.model.options import QueueOptions, SubscriptionOptions, TopicOptions
    from tablequeue.model.pacing import Backoff, Duration, Rate
    from tablequeue.model.payload import Unreadable
    from tablequeue.model.progress import Progress
    from tablequeue.model.states import FailedState, LiveState, State
    from tablequeue.queue import OnConflict, Queue
    from tablequeue.topic import Lag, Start, Subscription, Topic
    from tablequeue.verbs.batches import Batch, OpenBatch
    from tablequeue.verbs.cancel import Cancellation
    from tablequeue.verbs.doctor import Finding
    from tablequeue.verbs.maintain import ALL
    from tablequeue.verbs.move_between import Moved
    from tablequeue.verbs.sizes import TableSize
    from tablequeue.verbs.stats import Activity, Stats, Times, Window

    __version__: str

# The public names of each module. A name is imported at its first use, because SQLAlchemy takes longer to import than
# all else, and `tablequeue --version` needs none of them.
_NAMES = {
    "consumer": "Consumer",
    "database": "Database connect",
    "model.batch": "BatchProgress OnDead",
    "model.connection": "Connection",
    "model.definition": "Definition Delivery History Keep Order PayloadType SubscriptionDefinition TopicDefinition",
    "errors": "Cancelled Empty LeaseLost TablequeueError",
    "model.attempts": "AttemptError",
    "model.message": "Claim Message NewMessage",
    "verbs.batches": "Batch OpenBatch",
    "verbs.cancel": "Cancellation",
    "verbs.doctor": "Finding",
    "verbs.maintain": "ALL",
    "verbs.move_between": "Moved",
    "verbs.sizes": "TableSize",
    "verbs.stats": "Activity Stats Times Window",
    "model.options": "QueueOptions SubscriptionOptions TopicOptions",
    "model.pacing": "Backoff Duration Rate",
    "model.payload": "Unreadable",
    "model.progress": "Progress",
    "queue": "OnConflict Queue",
    "model.states": "FailedState LiveState State",
    "topic": "Lag Start Subscription Topic",
}


if not TYPE_CHECKING:  # type checkers take a module with this function for one that has every name

    def __getattr__(name: str) -> Any:
        module = next((module for module, names in _NAMES.items() if name in names.split()), None)
        if module is not None:
            value: Any = getattr(import_module(f"tablequeue.{module}"), name)
        elif name == "errors":
            return import_module("tablequeue.errors")
        elif name == "__version__":
            value = import_module("importlib.metadata").version("tablequeue")
        else:
            raise AttributeError(f"module 'tablequeue' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})


__all__ = [
    "ALL",
    "Activity",
    "AttemptError",
    "Backoff",
    "Batch",
    "BatchProgress",
    "Cancellation",
    "Cancelled",
    "Claim",
    "Connection",
    "Consumer",
    "Database",
    "Definition",
    "Delivery",
    "Duration",
    "Empty",
    "FailedState",
    "Finding",
    "History",
    "Keep",
    "Lag",
    "LeaseLost",
    "LiveState",
    "Message",
    "Moved",
    "NewMessage",
    "OnConflict",
    "OnDead",
    "OpenBatch",
    "Order",
    "PayloadType",
    "Progress",
    "Queue",
    "QueueOptions",
    "Rate",
    "Start",
    "State",
    "Stats",
    "Subscription",
    "SubscriptionDefinition",
    "SubscriptionOptions",
    "TableSize",
    "TablequeueError",
    "Times",
    "Topic",
    "TopicDefinition",
    "TopicOptions",
    "Unreadable",
    "Window",
    "connect",
    "errors",
]
