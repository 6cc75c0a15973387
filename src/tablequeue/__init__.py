"""Queues in the database you already have, pipelines on Spark."""

from tablequeue import errors
from tablequeue.database import Database, connect
from tablequeue.definition import (
    Definition,
    Delivery,
    History,
    Keep,
    Order,
    PayloadType,
    SubscriptionDefinition,
    TopicDefinition,
)
from tablequeue.errors import Cancelled, Empty, LeaseLost, TablequeueError
from tablequeue.message import AttemptError, Claim, Message, NewMessage
from tablequeue.operations.cancel import Cancellation
from tablequeue.operations.doctor import Finding
from tablequeue.operations.move_between import Moved
from tablequeue.operations.stats import Activity, Stats, Times, Window
from tablequeue.options import QueueOptions, SubscriptionOptions, TopicOptions
from tablequeue.pacing import Backoff, Duration, Rate
from tablequeue.payload import Unreadable
from tablequeue.queue import OnConflict, Queue
from tablequeue.states import FailedState, LiveState, State
from tablequeue.topic import Lag, Start, Subscription, Topic

__all__ = [
    "Activity",
    "AttemptError",
    "Backoff",
    "Cancellation",
    "Cancelled",
    "Claim",
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
    "Order",
    "PayloadType",
    "Queue",
    "QueueOptions",
    "Rate",
    "Start",
    "State",
    "Stats",
    "Subscription",
    "SubscriptionDefinition",
    "SubscriptionOptions",
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
