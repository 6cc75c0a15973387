"""Stream reads: a micro-batch of Spark is a batch of a stream.

This relies on one promise of Spark: it calls `latestOffset(start)` only when the batch that ended at `start` is in its
commit log, and so in the sink. That call completes the batch, and claims the next one. (Spark calls `commit` one batch
late, never after the last batch, and `stop` mostly not at all.) A batch that was claimed but not logged is delivered
again, and a logged batch is read again with the same rows, until it is completed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from time import sleep
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from tablequeue.bulk import arrow
from tablequeue.bulk.stream import Stream, fail
from tablequeue.consumer import Consumer
from tablequeue.spark.batch import size_of_parts
from tablequeue.spark.checkpoints import Offset, Origin
from tablequeue.spark.options import LARGEST, Options
from tablequeue.spark.payloads import Selected

# Seconds by which an empty answer is delayed, doubling from the first to the last: Spark asks 80 times a second.
PAUSES = (0.02, 0.5)
# Minimum number of messages for one more task: two tasks of 5,000 take longer than one of 10,000, on SQLite too.
MESSAGES_PER_TASK = 10_000


# Maximum number of messages of the one batch of `trigger(once=True)`: as many as all databases take for a limit.
ALL = (1 << 31) - 1


def most(limit: ReadLimit, options: Options) -> int:
    """Return the maximum number of messages of a batch; no maximum if Spark asks for all messages."""
    if isinstance(limit, ReadAllAvailable):
        return ALL
    return limit.max_rows if isinstance(limit, ReadMaxRows) else options.max_messages


class Idle:
    """Delays empty answers to Spark."""

    def __init__(self) -> None:
        self._pause = PAUSES[0]

    def answer(self, at_once: bool) -> None:
        if at_once:
            self._pause = PAUSES[0]
        else:
            sleep(self._pause)
            self._pause = min(2 * self._pause, PAUSES[1])


class BatchPartition(InputPartition):
    def __init__(self, token: str, ids: Sequence[int]) -> None:
        self.token = token
        self.ids = ids


class MicroBatchReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream. Spark has copies of this object in several processes; only that for the offsets starts a run."""

    def __init__(self, options: Options, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = columns
        self._run: Stream | None = None
        self._known: Origin | None = None
        self._last_id: int | None = None
        self._idle = Idle()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_run": None}

    def initialOffset(self) -> Offset:  # noqa: N802  (Spark's names here and below)
        found = self._stream().found
        if found.open:
            print(
                f"tablequeue: the checkpoint of the stream {found.stream!r} has no finished batch; the {found.open} "
                f"messages of batch {found.batch}, which the last run left open, are delivered again.",
                file=sys.stderr,
            )
        return self._origin.offset(batch=found.completed)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        bounds = arrow.bounds(self._queue, "queue", arrow.Range(0, LARGEST))
        self._last_id = 0 if bounds is None else bounds.high

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        self._origin.check(start)  # before the run begins: it fences the one that goes on, and completes a batch
        n = most(limit, self._options)
        run = self._stream()
        last = run.advance(start["batch"], n, token=start.get("token"), last_id=self._last_id)
        self._idle.answer(last > start["batch"] or self._last_id is not None)
        # The same offset to the letter, if there is nothing new: the queue may have another name now.
        return self._origin.offset(batch=last, token=run.token) if last > start["batch"] else start

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        self._origin.check(end)
        if start == end:
            return []
        token, ids = self._stream().batch(end["batch"], end.get("token"))
        size = size_of_parts(len(ids), self._options.partitions, MESSAGES_PER_TASK)
        return [BatchPartition(token, ids[at : at + size]) for at in range(0, len(ids), size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, BatchPartition)
        queue, options = self._queue, self._options
        # What does not fit the schema fails here: a query may leave out the rows of such messages.
        noted = partial(fail, queue, options.stream)
        selected = Selected(self._columns, arrow.columns(queue, "stream"), options.payload_schema, noted)
        yield from selected.of(arrow.stream_batches(queue, partition.token, partition.ids, selected.read))

    def commit(self, end: Offset) -> None:
        """Do nothing: `latestOffset` has completed the batch."""

    @property
    def _queue(self) -> Consumer:
        return self._options.connect().consumer(self._options.queue)

    @property
    def _origin(self) -> Origin:
        if self._known is None:
            self._known = Origin(self._queue, self._options.stream)
        return self._known

    def _stream(self) -> Stream:
        if self._run is None:
            self._run = Stream(self._queue, self._options.stream)
        return self._run
