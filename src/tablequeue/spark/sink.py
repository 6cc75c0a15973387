"""Writes: each task stages its rows, and the driver pushes what all of them staged at once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from tablequeue import staging
from tablequeue.arrow import TIME
from tablequeue.errors import BadInput
from tablequeue.operations.push import LONGEST_KEY
from tablequeue.queue import Queue
from tablequeue.spark.options import Options
from tablequeue.staging import Staged

# The types that a column of a DataFrame may have, for each Arrow type.
_TAKEN = {
    pa.string(): ("string",),
    pa.binary(): ("binary",),
    pa.int32(): ("int", "smallint", "tinyint"),
    TIME: ("timestamp",),
}


@dataclass
class StagedMessage(WriterCommitMessage):
    """What a task tells the driver: the write, what it staged of it, and of which query it is.

    The write too, for in a stream the driver commits by another object than the one that it sent to the tasks.
    """

    write: str
    staged: Staged
    query: str | None


class _Writer:
    def __init__(self, options: Options, schema: Any, overwrite: bool) -> None:
        if overwrite:
            raise BadInput(
                "A queue cannot be overwritten.", "Write with mode append; purge the queue before, if so meant."
            )
        self._options = options
        # One for all tasks, to which this object is sent.
        self._write = uuid.uuid4().hex
        with options.connect() as database:
            queue = database.queue(options.queue)
            _check_columns(queue, {field.name: field.dataType.simpleString() for field in schema.fields})
            staging.prepare(queue)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        context = TaskContext.get()
        assert context is not None
        with self._options.connect() as database:
            queue = database.queue(self._options.queue)
            staged = staging.stage(queue, self._write, uuid.uuid4().hex, context.partitionId(), iterator)
        return StagedMessage(self._write, staged, context.getLocalProperty("sql.streaming.queryId"))

    def _publish(self, messages: Sequence[StagedMessage], writer: str | None, batch: int) -> None:
        options = self._options
        write = messages[0].write
        with options.connect() as database:
            staging.publish(
                database.queue(options.queue),
                write,
                [message.staged for message in messages],
                on_conflict=options.on_conflict,
                producer=options.producer or f"spark:{writer or write}"[:LONGEST_KEY],
                writer=writer,
                batch=batch,
            )

    def _unstage(self, messages: Sequence[StagedMessage | None]) -> None:
        """What of it is known; the rest goes after a day."""
        with self._options.connect() as database:
            for write in {message.write for message in messages if message is not None}:
                staging.unstage(database.queue(self._options.queue), write)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """The messages of a job become visible together at its end, or not at all. A task tried again adds nothing."""

    def commit(self, messages: Sequence[Any]) -> None:
        if messages:
            self._publish(messages, self._options.writer, self._options.batch)

    def abort(self, messages: Sequence[Any]) -> None:
        self._unstage(messages)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """The messages of a micro-batch become visible together, once for each batch of the query's checkpoint."""

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803  (Spark's name)
        if messages:
            self._publish(messages, messages[0].query, batchId)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803  (Spark's name)
        self._unstage(messages)


def _check_columns(queue: Queue, given: dict[str, str]) -> None:
    types = staging.written(queue)
    if "payload" not in given:
        raise BadInput("There is no column payload to write.", "Make one, for JSON by to_json(struct(...)).")
    for name, kind in given.items():
        if name not in types:
            raise BadInput(
                f"The queue {queue.name!r} takes no column {name!r}.",
                f"Leave it out; columns are: {', '.join(types)}.",
            )
        if kind not in _TAKEN[types[name]]:
            raise BadInput(
                f"The column {name} is a {kind}, and the queue {queue.name!r} takes a {_TAKEN[types[name]][0]}.",
                f"Cast it to {_TAKEN[types[name]][0]}"
                + (", by to_json(...) if it is JSON." if name == "payload" else "."),
            )
