"""The rows that operations return. Rows of messages are COLUMNS of columns.py and CLAIMED of model/message.py instead.

Times are values of the driver; `Engine.load_time` converts them.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class QueueRow(NamedTuple):
    """A queue in the catalogue."""

    entry: str
    """See `Table.entry`."""
    schema_version: int


class NameRow(NamedTuple):
    """The name of a queue, a topic or a subscription in the catalogue, and its entry."""

    name: str
    entry: str


class BoundsRow(NamedTuple):
    """The offsets of a topic."""

    first: int
    """The first offset whose message is still in the log."""
    end: int
    """The offset after the last one."""


class SizeRow(NamedTuple):
    """What the log of a topic has; see `Size`."""

    messages: int
    bytes: int
    oldest_age: float | None


class StatsRow(NamedTuple):
    """The number of messages in each state; see `Stats`."""

    ready: int
    scheduled: int
    in_progress: int
    dead: int
    blocked: int
    oldest_age: float | None
    finished: int | None
    lag: tuple[int, float | None] | None = None
    """Of a subscription: the messages that no consumer has claimed, and the age of the first ready one."""
    expired: int | None = None


class RangesRow(NamedTuple):
    """The number of messages of a subscription that are in the log alone."""

    ready: int
    """Those that no consumer has claimed."""
    in_progress: int
    finished: int
    oldest_age: float | None
    """Seconds since the first ready one was pushed."""


class FailedRow(NamedTuple):
    """An attempt that failed."""

    consumer: str | None
    ago: float
    """Seconds since it failed."""


class FinishedRow(NamedTuple):
    """A finished message."""

    producer: str | None
    consumer: str | None
    wait: float
    """Seconds, as are `run` and `ago`, the time since it was finished."""
    run: float
    attempts: int
    ago: float


class PushedRow(NamedTuple):
    """The messages of a producer that were pushed at the same moment."""

    producer: str | None
    ago: float
    """Seconds since the push."""
    messages: int


class LostRow(NamedTuple):
    """Lost messages of one producer and one consumer."""

    producer: str | None
    consumer: str | None
    messages: int


class ScheduleRow(NamedTuple):
    """A schedule of periodic pushes."""

    last_pushed: Any
    """The last due time for which a message was pushed."""
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
    """A stream and its open batch; see `StreamState`."""

    stream: str
    epoch: int
    batch: int
    completed: int
    token: str | None
    claimed_at: Any
    open: int
