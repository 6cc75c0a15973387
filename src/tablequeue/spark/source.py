"""The Spark data source `tablequeue`: a queue's history as a DataFrame. It never claims a message."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from tablequeue.engines.texts import COLUMNS
from tablequeue.spark.options import Options

# Rows of one short read, and of one Arrow batch.
BATCH = 10_000

_TIME = "timestamp"
_PAYLOAD = {"json": "string", "text": "string", "bytes": "binary"}
# Spark's type of each column.
TYPES: Mapping[str, str] = {
    "id": "bigint",
    "payload": "",  # the queue's
    "headers": "string",
    "attempts": "int",
    "priority": "int",
    "group": "string",
    "key": "string",
    "producer": "string",
    "consumer": "string",
    "pushed_at": _TIME,
    "due_at": _TIME,
    "first_popped_at": _TIME,
    "popped_at": _TIME,
    "finished_at": _TIME,
    "errors": "string",
}
# Spark insists on exactly these Arrow types.
_ARROW = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "string": pa.string(),
    "binary": pa.binary(),
    _TIME: pa.timestamp("us", "UTC"),
}


class TableQueueSource(DataSource):
    """`spark.read.format("tablequeue").option("url", …).option("queue", …).load()`: the history of a queue.

    Columns: id, payload (string, or binary for a bytes queue), headers and errors (JSON text), attempts, priority,
    group, key, producer, consumer, and the times pushed_at, due_at, first_popped_at, popped_at, finished_at.
    """

    @classmethod
    def name(cls) -> str:
        return "tablequeue"

    def schema(self) -> str:
        options = Options.parse(self.options)
        with options.connect() as database:
            payload = database.queue(options.queue).definition.payload
        return ", ".join(f"{name} {kind}" for name, kind in {**TYPES, "payload": _PAYLOAD[payload]}.items())

    def reader(self, schema: Any) -> HistoryReader:
        kinds = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        return HistoryReader(Options.parse(self.options), kinds)


class IdRange(InputPartition):
    def __init__(self, low: int, high: int) -> None:
        self.low = low
        self.high = high


class HistoryReader(DataSourceReader):
    """Reads ranges of ids in short reads: no snapshot stays open, and a retried task reads the same rows."""

    def __init__(self, options: Options, columns: Sequence[tuple[str, str]]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with options.connect() as database:
            bounds = database.queue(options.queue).history_bounds()
        if bounds is None:
            return [IdRange(1, 0)]  # for no partition at all, Spark would call read with None
        low, high = max(bounds[0], options.min_id), min(bounds[1], options.max_id)
        size = max((high - low) // options.partitions + 1, 1)
        return [IdRange(start, min(start + size - 1, high)) for start in range(low, high + 1, size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, IdRange)
        schema = pa.schema([(name, _ARROW[kind]) for name, kind in self._columns])
        places = [COLUMNS.index(name) for name, _ in self._columns]
        with self._options.connect() as database:
            queue = database.queue(self._options.queue)
            for rows in queue.history_batches(partition.low, partition.high, BATCH):
                columns = list(zip(*rows, strict=True))
                arrays = [
                    pa.array(_values(columns[place], field.type), field.type)
                    for place, field in zip(places, schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _values(column: Sequence[Any], kind: pa.DataType) -> Sequence[Any]:
    """A driver's values as Arrow takes them: JSON that the driver has read becomes text again."""
    if kind != pa.string():
        return column
    return [value if value is None or isinstance(value, str) else json.dumps(value) for value in column]
