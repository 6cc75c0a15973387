"""The options of what makes or alters a queue, a topic or a subscription, typed one by one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TypedDict

from tablequeue.model.definition import Definition, Delivery, Groups, History, Keep, Kind, Order, PayloadType
from tablequeue.model.pacing import Backoff, Duration, Rate


class TopicOptions(TypedDict, total=False):
    """The options of `Database.create_topic`, which explains them; an option that is left out has its default."""

    payload: PayloadType
    groups: bool
    keep: Keep


class SubscriptionOptions(TypedDict, total=False):
    """The options of `Topic.subscribe`, which explains them; an option that is left out has its default."""

    ordered: bool
    lease: Duration
    max_attempts: int
    backoff: Backoff


class QueueOptions(TypedDict, total=False):
    """The options of `Database.create_queue`, which explains them; an option that is left out has its default."""

    order: Order
    strict: bool
    groups: Groups
    payload: PayloadType
    lease: Duration
    max_attempts: int
    backoff: Backoff
    history: History
    delivery: Delivery
    dead_letter_to: str | None
    concurrency: int | None
    rate: Rate | None
    per_group: int | None
    group_rate: Rate | None
    expires: Duration | None
    unique_for: Duration | None
    results: bool
    batches: bool
    dependencies: bool
    labels: Mapping[str, str]


class AlterOptions(TypedDict, total=False):
    """The options of `Queue.alter`: options of `Database.create_queue` that need no change of a table with messages."""

    lease: Duration
    max_attempts: int
    backoff: Backoff
    history: History
    dead_letter_to: str | None
    concurrency: int | None
    rate: Rate | None
    expires: Duration | None
    unique_for: Duration | None
    results: bool
    batches: bool
    dependencies: bool
    labels: Mapping[str, str | None]


# What `alter` can change; the rest of a definition is in the tables that hold messages.
ALTERABLE: Mapping[Kind, tuple[str, ...]] = {
    "queue": tuple(AlterOptions.__annotations__),
    "subscription": ("lease", "max_attempts", "backoff"),
    "topic": (),
}
# What `alter` cannot switch off: another process may use it at that moment, and nobody would look at its messages.
LASTING = ("batches", "dependencies")


def fixed(there: Definition, wanted: Definition) -> str | None:
    """Return the first option that `alter` cannot change to its value in the wanted definition; else None."""
    for field in dataclasses.fields(there):
        differs = getattr(there, field.name) != getattr(wanted, field.name)
        ends = field.name in LASTING and getattr(there, field.name)
        if differs and (ends or field.name not in ALTERABLE[there.kind]):
            return field.name
    return None if there.keeps_history == wanted.keeps_history else "history"
