"""Reads of a topic, in batch and as a stream: ranges of its log, which any number of tasks read side by side.

An offset of Spark is an offset of the log: a batch begins at one offset, and ends before another. Nothing is claimed or
completed, and a replay reads the same rows. `settle` of the engine promises that an offset in a checkpoint keeps its
message.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from functools import lru_cache
from time import monotonic
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from tablequeue.bulk import arrow
from tablequeue.database import Database
from tablequeue.errors import BadInput, MessagesDropped, StreamRefused
from tablequeue.ext import context_of
from tablequeue.spark.batch import LEAST_PER_TASK
from tablequeue.spark.checkpoints import Offset, Origin
from tablequeue.spark.microbatch import Idle, most
from tablequeue.spark.options import Options, Position
from tablequeue.spark.payloads import Selected
from tablequeue.topic import Subscription, Topic
from tablequeue.verbs import topics
from tablequeue.verbs.context import Context

# Maximum number of messages of a task: one that is tried again repeats no more.
MOST_PER_TASK = 500_000
# The prefix of the consumers of ranges that note positions of streams.
WHO = "spark:"


class OffsetPartition(InputPartition):
    def __init__(self, start: int, end: int, table: str) -> None:
        self.start = start
        self.end = end
        self.table = table
        """The table of the topic that the offsets are of."""


class _Reader:
    """What both readers do. Spark has copies of them in several processes; each connects by itself."""

    def __init__(self, options: Options, columns: Sequence[str]) -> None:
        assert options.topic is not None, "of a topic"
        self._options = options
        self._columns = columns
        self._name = options.topic
        self._table: str | None = None
        """The table of the topic when it was opened first: another topic may get its name."""
        self._cached: Topic | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cached": None}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, OffsetPartition)
        start, end = partition.start, partition.end
        topic = _topic(self._options.connect(), self._name, partition.table)
        selected = Selected(self._columns, arrow.columns(topic, "log"), self._options.payload_schema)
        read = 0
        for batch in selected.of(arrow.log_batches(topic, start, end, selected.read)):
            read += batch.num_rows
            yield batch
        if read < end - start and self._options.fails_on_loss:
            raise _lost(f"{end - start - read} messages at the offsets {start} to {end - 1} of {self._name!r}")

    def _opened(self) -> Topic:
        if self._cached is None:
            self._cached = self._open()
        return self._cached

    def _open(self) -> Topic:
        topic = self._options.connect().topic(self._name)
        self._check_table(context_of(topic).table.table_name)
        return topic

    def _check_table(self, table: str) -> None:
        """Refuse offsets of another topic, which had that name before."""
        self._table = self._table or table
        if table != self._table:
            raise _created_again(self._name)

    @property
    def _context(self) -> Context:
        return context_of(self._opened())

    def _partitions(self, start: int, end: int) -> list[OffsetPartition]:
        """Return the parts of a range of the log; an empty part if there is none, else Spark would read None."""
        messages = max(0, end - start)
        worthwhile = min(self._options.min_partitions, -(-messages // LEAST_PER_TASK))
        size = max(1, -(-messages // max(1, worthwhile, -(-messages // MOST_PER_TASK))))
        table = self._context.table.table_name
        parts = [OffsetPartition(low, min(low + size, end), table) for low in range(start, end, size)]
        return parts or [OffsetPartition(end, end, table)]

    def _there(self, start: int, first: int) -> int:
        """Return the first offset from `start` on that the log still has. `MessagesDropped` if it is not `start`."""
        if start < first and self._options.fails_on_loss:
            raise _lost(f"The messages of the topic {self._name!r} from offset {start} to {first - 1}")
        return max(start, first)

    def _first(self) -> int:
        """Return the first offset that the log still has."""
        return self._context.run(self._context.engine.topics.bounds, {}).first

    def _offset_of(self, position: Position) -> int:
        return offset_of(self._opened(), position)


class TopicReader(_Reader, DataSourceReader):
    """Reads the messages from one position to another. A retried task reads the same."""

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        end = self._offset_of("end" if options.ending is None else options.ending)
        start = self._offset_of("beginning" if options.starting is None else options.starting)
        return self._partitions(self._there(start, self._first()), end)


class TopicStreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a topic in batches. Spark calls `latestOffset(start)` only when all before `start` is in the sink."""

    def __init__(self, options: Options, columns: Sequence[str]) -> None:
        super().__init__(options, columns)
        self._known: Origin | None = None
        # What a stream gets that began without a subscription.
        self._reader = secrets.token_hex(4)
        self._begun: Offset | None = None
        self._end: int | None = None
        self._latest = 0
        self._noted: int | None = None
        # The end of the last batch, and when it was given to Spark.
        self._given = (0, monotonic())
        # The last batch that `latestOffset` has found in the log; `read` finds messages that are dropped after that.
        self._looked: tuple[int, int] | None = None
        self._idle = Idle()

    def initialOffset(self) -> Offset:  # noqa: N802  (Spark's names here and below)
        if self._begun is None:  # Spark asks twice, and the end may have moved
            self._begun = self._begin()
        return self._begun

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._end = topics.bounds(self._context).end

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        at = self._checked(start)
        n = most(limit, self._options)
        seek = self._seek(start)
        begin = at if seek is None else seek.offset
        # Spark asks again for the initial offset, if it reads the first batch again.
        moved = begin if seek is not None or start == self._begun else None
        until = start.get("until")
        found = topics.bounds(self._context, begin, n)
        if begin > found.end:
            raise StreamRefused(
                f"The checkpoint is at the offset {begin} of the topic {self._name!r}, which ends before {found.end}: "
                "the topic is older than the checkpoint.",
                "Use a new checkpoint.",
            )
        if seek is None:
            self._note(at, start)
        self._latest = found.end
        there = self._there(begin, found.first)
        end = min(each for each in (found.end, self._end, until, there + n) if each is not None)
        self._looked = (begin, end) if there == begin else None
        if end > begin:
            self._given = (end, monotonic())
        self._idle.answer(end > begin or self._end is not None)
        if end <= begin:
            return start  # to the letter: the topic may have another name now
        seen = start.get("seek") if seek is None else seek.id
        return self._offset(end, moved, start.get("reader"), seen, until)

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        return self._origin.offset(offset=self._latest)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        last = self._checked(end)
        first = end.get("from", self._checked(start))
        if (first, last) != self._looked:
            first = self._there(first, self._first())
        return self._partitions(first, last)

    def commit(self, end: Offset) -> None:
        """Do nothing: `latestOffset` has noted the position."""

    def _begin(self) -> Offset:
        """Return where a stream with a new checkpoint begins. Its subscription follows it there."""
        starting, ending = self._options.starting, self._options.ending
        until = None if ending is None else self._offset_of(ending)
        if self._options.subscription is None:
            return self._offset(self._offset_of("beginning" if starting is None else starting), None, None, None, until)
        subscription, reader = context_of(self._subscription), secrets.token_hex(4)
        if starting is not None:
            topics.move(subscription, self._offset_of(starting))
        last = topics.position(subscription)
        if starting is None:
            self._refuse_other(last, reader)
        topics.note(subscription, last.offset, self._who(reader))  # refuses one that has consumers
        return self._offset(max(last.offset, topics.bounds(self._context).first), None, reader, last.id, until)

    def _seek(self, start: Offset) -> topics.PositionRow | None:
        """Return where somebody has moved the subscription since the checkpoint: the stream goes on there."""
        if self._options.subscription is None or "reader" not in start:
            return None  # the checkpoint is older than the subscription
        last = topics.position(context_of(self._subscription))
        self._refuse_other(last, start["reader"])
        return last if last.consumer is None and last.id != start["seek"] else None

    def _refuse_other(self, last: topics.PositionRow, reader: str) -> None:
        """Refuse a subscription that notes the position of another stream: that one would lose messages."""
        if last.consumer and last.consumer.startswith(WHO) and last.consumer != self._who(reader):
            raise StreamRefused(
                f"The subscription {self._options.subscription!r} of the topic {self._name!r} notes the position of "
                "another stream of Spark.",
                "Give each stream a subscription of its own. If the checkpoint of the other stream is lost, go on with "
                f"a new one by startingPosition={last.offset}.",
            )

    def _note(self, offset: int, start: Offset) -> None:
        """Note in the subscription that all messages before an offset are in the sink."""
        if self._options.subscription is not None and "reader" in start and offset != self._noted:
            end, given = self._given
            who = self._who(start["reader"])
            topics.note(context_of(self._subscription), offset, who, monotonic() - given if end == offset else 0)
            self._noted = offset

    def _who(self, reader: str) -> str:
        """The consumer of the ranges that a stream notes."""
        return f"{WHO}{self._options.subscription}#{reader}"

    @property
    def _subscription(self) -> Subscription:
        assert self._options.subscription is not None, "it is given"
        return self._opened().subscription(self._options.subscription)

    def _offset(
        self, offset: int, begin: int | None, reader: str | None, seek: int | None, until: int | None
    ) -> Offset:
        """Return an offset. `from` is where its batch begins, if not at the offset before. `reader` names the stream
        among the streams of a subscription, and `seek` is the last seek of the subscription that the stream has
        followed. It ends at `until`."""
        parts = {"from": begin, "reader": reader or self._reader, "seek": seek, "until": until}
        if self._options.subscription is None:
            del parts["reader"], parts["seek"]
        return self._origin.offset(offset=offset, **{name: value for name, value in parts.items() if value is not None})

    @property
    def _origin(self) -> Origin:
        if self._known is None:
            self._known = Origin(self._opened())
        return self._known

    def _checked(self, offset: Offset) -> int:
        self._origin.check(offset)
        checked: int = offset["offset"]
        return checked


def offset_of(topic: Topic, position: Position) -> int:
    """Return the offset of a position. Raises `BadInput` for an offset that does not exist yet."""
    context = context_of(topic)
    if not isinstance(position, int):
        return topics.offset_of(context, position)
    end = topics.bounds(context).end
    if position > end:
        raise BadInput(
            f"Offset {position} of the topic {topic.name!r} does not exist yet; the next offset is {end}.",
            "Give an offset that it has, or end.",
        )
    return position


# A table name is given once, so whoever has it has the same topic. Without this cache each task looks into the
# catalogue, by two round trips.
@lru_cache(maxsize=64)
def _topic(database: Database, name: str, table: str) -> Topic:
    topic = database.topic(name)
    if context_of(topic).table.table_name != table:
        raise _created_again(name)
    return topic


def _created_again(name: str) -> StreamRefused:
    return StreamRefused(
        f"The topic {name!r} was dropped and created again: the offsets belong to the earlier topic.",
        "Use a new checkpoint.",
    )


def _lost(what: str) -> MessagesDropped:
    return MessagesDropped(
        f"{what} were dropped by the retention of the topic.",
        "Go on without them by failOnDataLoss=false; and have the topic keep messages for longer.",
    )
