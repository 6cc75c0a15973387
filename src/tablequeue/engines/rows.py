"""The rows that operations return, by name; those of messages are COLUMNS of columns.py and CLAIMED of message.py.

Times are as the driver gives them; `Engine.load_time` reads them.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class QueueRow(NamedTuple):
    """A queue as the catalogue has it."""

    entry: str
    """See `Table.entry`."""
    schema_version: int


class StatsRow(NamedTuple):
    """How many messages are in each state; see `Stats`."""

    ready: int
    scheduled: int
    in_progress: int
    dead: int
    blocked: int
    oldest_age: float | None
    finished: int | None


class FinishedRow(NamedTuple):
    """A finished message."""

    producer: str | None
    consumer: str | None
    wait: float
    """Seconds; so are `run`, and `ago`, since it was finished."""
    run: float
    attempts: int
    ago: float


class PushedRow(NamedTuple):
    """Messages that were pushed at the same moment."""

    producer: str | None
    ago: float
    """Seconds since."""
    messages: int


class LostRow(NamedTuple):
    """Lost messages of one producer and one consumer."""

    producer: str | None
    consumer: str | None
    messages: int


class ScheduleRow(NamedTuple):
    """A schedule of periodic pushes."""

    last_pushed: Any
    """When it was last due and pushed."""
    clock: Any
    """The database's clock."""


class StreamRow(NamedTuple):
    """The row of a stream."""

    epoch: int
    batch: int
    completed: int
    token: str | None
    failures: str


class StreamsRow(NamedTuple):
    """A stream, and what it has open; see `StreamState`."""

    stream: str
    epoch: int
    batch: int
    completed: int
    token: str | None
    claimed_at: Any
    open: int
