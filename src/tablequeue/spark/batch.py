"""Batch reads: the history of a queue, or its live messages, by ranges of ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tablequeue.bulk import arrow
from tablequeue.bulk.arrow import Range
from tablequeue.spark.options import Options
from tablequeue.spark.payloads import Selected

# Minimum number of messages of a task. Two tasks of 5,000 messages take longer than one of 10,000: each has to start in
# Spark and to connect.
LEAST_PER_TASK = 20_000


def size_of_parts(number: int, most: int, worthwhile: int) -> int:
    """Return the size of at most so many parts of a number of messages: no more than one for each `worthwhile`."""
    return -(-number // min(most, -(-number // worthwhile)))


class RangePartition(InputPartition):
    def __init__(self, within: Range) -> None:
        self.within = within


class BatchReader(DataSourceReader):
    """Reads with short queries. No snapshot stays open, and a retried task reads the same history."""

    def __init__(self, options: Options, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        within = Range(options.min_id, options.max_id, options.since, options.until)
        found = arrow.bounds(options.connect().consumer(options.queue), options.table, within)
        if found is None:
            return [RangePartition(Range(1, 0))]  # without any partition, Spark would call read with None
        ids = found.high - found.low + 1  # at least as many as there are messages
        size = size_of_parts(ids, options.partitions, LEAST_PER_TASK)
        return [
            RangePartition(found._replace(low=low, high=min(low + size - 1, found.high)))
            for low in range(found.low, found.high + 1, size)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        options = self._options
        queue = options.connect().consumer(options.queue)
        selected = Selected(self._columns, arrow.columns(queue, options.table), options.payload_schema)
        yield from selected.of(arrow.batches(queue, options.table, partition.within, selected.read))
