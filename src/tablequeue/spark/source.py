"""The Spark data source `tablequeue`: queues and topics as DataFrames, as streams, and as sinks."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from tablequeue.bulk import arrow
from tablequeue.consumer import Consumer
from tablequeue.errors import BadInput
from tablequeue.spark.batch import BatchReader
from tablequeue.spark.microbatch import MicroBatchReader
from tablequeue.spark.options import Options
from tablequeue.spark.payloads import ERROR, with_fields
from tablequeue.spark.sink import BatchWriter, StreamWriter
from tablequeue.spark.topic import TopicReader, TopicStreamReader
from tablequeue.topic import Topic

# Spark requires exactly these Arrow types for its own types.
_TYPES = {
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.string(): "string",
    pa.binary(): "binary",
    arrow.TIME: "timestamp",
}


class TableQueueSource(DataSource):
    """`format("tablequeue")`, which Spark finds without registration; `Options` has its options.

    read          reads the history of a queue, or its live messages (`table=queue`). Claims nothing.
    readStream    reads messages of a queue, in batches that are completed when Spark's checkpoint has them.
    write         pushes all messages of a job, or none.
    writeStream   does so for each batch, and only once, however often Spark repeats the batch.

    With the option `topic` all of these are about a topic. Its reads are ranges of the log, and claim nothing.

    Columns to read: id, payload (string, or binary for a bytes queue), headers and errors (JSON text), state (queue
    only), attempts, priority, group, key, producer, consumer, pushed_at, due_at, first_popped_at, popped_at,
    lease_until (queue only), finished_at (history only). A stream lacks state, consumer, lease_until and finished_at.
    Of a topic: offset, id, payload, headers, group, producer, pushed_at.
    With payloadSchema the fields of the payload follow as columns.
    Columns to write: payload, and optionally headers, priority, group, key and due; to a topic headers and group.
    """

    @classmethod
    def name(cls) -> str:
        return "tablequeue"

    def schema(self) -> str | StructType:
        options = Options.parse(self.options)
        source: arrow.Source = "log" if options.topic else "stream" if options.stream else options.table
        fields = _chosen(options.opened(), source, options)
        if options.payload_schema is not None:
            return with_fields(fields, options.payload_schema)
        return ", ".join(f"`{one.name}` {_TYPES[one.type]}" for one in fields)

    def reader(self, schema: Any) -> DataSourceReader:
        options = Options.parse(self.options, "read")
        return (TopicReader if options.topic else BatchReader)(options, schema.fieldNames())

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        options = Options.parse(self.options, "stream")
        return (TopicStreamReader if options.topic else MicroBatchReader)(options, schema.fieldNames())

    def writer(self, schema: Any, overwrite: bool) -> BatchWriter:
        return BatchWriter(Options.parse(self.options, "write"), schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:  # noqa: N802  (Spark's name)
        return StreamWriter(Options.parse(self.options, "stream write"), schema, overwrite)


def _chosen(queue: Consumer | Topic, source: arrow.Source, options: Options) -> list[pa.Field]:
    fields = arrow.columns(queue, source)
    there = {field.name: field for field in fields}
    if options.payload_schema is not None:
        there[ERROR] = pa.field(ERROR, pa.string())
    for name in options.columns or ():
        if name not in (*there, "*"):
            raise BadInput(f"There is no column {name!r} to read.", f"Columns are: {', '.join(there)}.")
    return [there[name] for column in options.columns or "*" for name in (fields.names if column == "*" else [column])]
