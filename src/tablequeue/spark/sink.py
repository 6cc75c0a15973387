"""Writes: each task stages its rows, and the driver publishes all of them at once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from tablequeue.bulk import staging
from tablequeue.bulk.arrow import TIME
from tablequeue.bulk.staging import Staged
from tablequeue.consumer import Consumer
from tablequeue.errors import BadInput
from tablequeue.spark.options import Options
from tablequeue.topic import Topic
from tablequeue.verbs.push import LONGEST_KEY

# The types of DataFrame columns that are accepted for each Arrow type.
_ACCEPTED = {
    pa.string(): ("string",),
    pa.binary(): ("binary",),
    pa.int32(): ("int", "smallint", "tinyint"),
    TIME: ("timestamp",),
}


@dataclass
class StagedMessage(WriterCommitMessage):
    """What a task reports to the driver: the id of the write, what it staged, and the id of the query.

    In a stream, the driver commits with another object than the one that it sent to the tasks, so it needs the id.
    """

    write: str
    staged: Staged
    query: str | None


class _Writer:
    def __init__(self, options: Options, schema: Any, overwrite: bool) -> None:
        if overwrite:
            raise BadInput(
                "Queues and topics cannot be overwritten.",
                "Write with mode append, and purge the queue first if you want to replace it.",
            )
        self._options = options
        # The same in all tasks, to which this object is sent.
        self._write = uuid.uuid4().hex
        queue = options.opened()
        _check_columns(queue, {field.name: field.dataType.simpleString() for field in schema.fields})
        staging.prepare(queue)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        producer = self._producer(self._write, self._writer(query))
        part = context.partitionId()
        queue = self._options.opened()
        staged = staging.stage(queue, self._write, uuid.uuid4().hex, part, iterator, producer=producer)
        return StagedMessage(self._write, staged, query)

    def _writer(self, query: str | None) -> str | None:
        """Return the name under which the batches of this write, which may be in a query, are numbered."""
        return self._options.writer

    def _producer(self, write: str, writer: str | None) -> str:
        return self._options.producer or f"spark:{writer or write}"[:LONGEST_KEY]

    def _publish(self, messages: Sequence[StagedMessage], batch: int) -> None:
        options = self._options
        write = messages[0].write
        writer = self._writer(messages[0].query)
        staging.publish(
            options.opened(),
            write,
            [message.staged for message in messages],
            on_conflict=options.on_conflict,
            producer=self._producer(write, writer),
            writer=writer,
            batch=batch,
        )

    def _unstage(self, messages: Sequence[StagedMessage | None]) -> None:
        """Delete what these tasks have staged. What other tasks have staged is deleted after a day."""
        for write in {message.write for message in messages if message is not None}:
            staging.unstage(self._options.opened(), write)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Makes the messages of a job visible at once at its end, or not at all. Retried tasks add nothing."""

    def commit(self, messages: Sequence[Any]) -> None:
        if messages:
            self._publish(messages, self._options.batch)

    def abort(self, messages: Sequence[Any]) -> None:
        self._unstage(messages)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Makes the messages of a micro-batch visible at once, and only once for each batch of the query's checkpoint."""

    def _writer(self, query: str | None) -> str | None:
        return query

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803  (Spark's name)
        if messages:
            self._publish(messages, batchId)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803  (Spark's name)
        self._unstage(messages)


def _check_columns(queue: Consumer | Topic, given: dict[str, str]) -> None:
    types = staging.written(queue)
    target = f"{queue.definition.kind} {queue.name!r}"
    if "payload" not in given:
        raise BadInput("There is no column payload to write.", "Add one, for JSON by to_json(struct(...)).")
    for name, kind in given.items():
        if name not in types:
            raise BadInput(
                f"The {target} takes no column {name!r}.",
                f"Leave it out; columns are: {', '.join(types)}.",
            )
        if kind not in _ACCEPTED[types[name]]:
            raise BadInput(
                f"The column {name} is a {kind}, and the {target} takes a {_ACCEPTED[types[name]][0]}.",
                f"Cast it to {_ACCEPTED[types[name]][0]}"
                + (", by to_json(...) if it is JSON." if name == "payload" else "."),
            )
