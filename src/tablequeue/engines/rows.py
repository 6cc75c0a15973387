"""The rows that operations return. Rows of messages are COLUMNS of columns.py and CLAIMED of model/message.py instead.

Times are values of the driver; `Engine.load_time` converts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tablequeue.engines.texts import Row

Done = tuple[Sequence[int] | None, list[Row] | None]
"""What `complete_and_claim` returns: see there."""


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


class TableRow(NamedTuple):
    """A table of a queue; see `TableSize`."""

    table: str
    rows: int | None
    bytes: int
    dead: int | None


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
    open_batches: int | None = None


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
    cron: str
    """The expression, with its time zone."""


class OpenBatchRow(NamedTuple):
    """An open batch, and what is left of it."""

    id: int
    on_dead: str
    tells: bool
    """Whether its callback for dead letters is still to be pushed."""
    active: bool
    """Whether messages of it wait or are in progress."""
    dead: bool
    """Whether it has dead letters."""
    uncancelled: bool
    """Whether its dead letters cancel the others, and one was not told to stop."""

    @property
    def ends(self) -> bool:
        return not self.active and (self.on_dead != "wait" or not self.dead)

    @property
    def fails(self) -> bool:
        return self.tells and self.dead

    @property
    def cancels(self) -> bool:
        return self.uncancelled and self.dead


class PushesRow(NamedTuple):
    """What a batch pushes, as JSON; see verbs/batch_ends.py."""

    then: str | None
    failed: str | None


class EndedRow(NamedTuple):
    """What a message waited for, and whether that cancels it."""

    id: int
    message: int
    cancels: bool


class ChordRow(NamedTuple):
    """A chord that is complete, and what is sent then."""

    id: str
    body: bytes


class BatchRow(NamedTuple):
    """A batch; see `BatchProgress`. `pushed`, `cancelled` and `dead` are final if it has ended."""

    opened_at: Any
    failed_at: Any
    ended_at: Any
    pushed: int
    cancelled: int
    dead: int
    pushed_since: int
    cancelled_since: int
    waiting: int
    in_progress: int
    dead_now: int


class ProgressRow(NamedTuple):
    """The last report on a message in progress; see `Progress`."""

    id: int
    fraction: float
    detail: str | None
    reported_at: Any
    attempt: int


class PositionRow(NamedTuple):
    """The position of a subscription: the offset of the next claim, and the consumer that moved it last."""

    offset: int
    id: int
    """The number of the last range or seek."""
    consumer: str | None
    """Its consumer; None of a seek, or if nobody has moved it yet."""


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
