"""Parquet files that the executors write, and that a table then names in one commit of the driver.

A task writes one file after the other and returns a row for each, so neither the driver nor a worker has a batch in its
memory. Each file has a name of its own. What a task leaves that fails, or a batch that is broken off, no table names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema

from tablequeue.errors import BadInput

# Bytes in memory of a row group: few enough for a worker, and enough for a reader to skip much at once.
ROW_GROUP = 64 << 20
# Longer texts are in no statistics: a payload may have megabytes.
LONGEST = 64
# Parquet has no statistics of longer texts, and PyIceberg takes the partition of a file from these.
LONGEST_PARTITION = 1000
KEY = "tablequeue partition"
_RETURNS = "name string, size bigint, partition string, stats string"
# What a partition's value is written as is the same in all engines for these types alone.
_PARTITION_TYPES = ("string", "date", "boolean", "tinyint", "smallint", "int", "bigint")


class DataFile(NamedTuple):
    """A file in the folder. `stats` are those of Delta, as JSON; `partition` has the values of all its rows."""

    name: str
    size: int
    partition: dict[str, str | None]
    stats: str


def schema_of(rows: DataFrame, partition_by: Sequence[str]) -> pa.Schema:
    """The schema for a table of these rows: everything may be null. Raises `BadInput` for what no table has."""
    _check_partitions(rows, partition_by)
    for name, kind in rows.dtypes:
        if kind == "void":
            raise BadInput(f"The column {name} has no type.", f"Cast it: f.lit(None).cast('string').alias({name!r}).")
    return to_arrow_schema(rows.schema.toNullable(), timezone="UTC")


def write(rows: DataFrame, folder: str, prefix: str, schema: pa.Schema, partition_by: Sequence[str]) -> list[DataFile]:
    """Write the rows as files with a schema, those of each partition apart. Columns that the rows lack are null."""
    _check_partitions(rows, partition_by)
    texts = [f.col(name).cast("string").alias(name) for name in partition_by]
    rows = rows.withColumn(KEY, f.to_json(f.struct(*texts), {"ignoreNullFields": "false"}) if texts else f.lit("{}"))
    if texts:
        rows = rows.sortWithinPartitions(KEY)
    written = rows.mapInArrow(partial(_write, folder, prefix, schema), _RETURNS).collect()
    found = [DataFile(each.name, each.size, json.loads(each.partition), each.stats) for each in written]
    for name in partition_by:
        if any(len(each.partition[name] or "") > LONGEST_PARTITION for each in found):
            raise BadInput(
                f"The column {name}, by which the table is partitioned, has a text of more than {LONGEST_PARTITION} "
                "characters.",
                "Partition by shorter texts.",
            )
    return found


def _check_partitions(rows: DataFrame, partition_by: Sequence[str]) -> None:
    types = dict(rows.dtypes)
    for name in partition_by:
        if types.get(name) not in _PARTITION_TYPES:
            cause = f"is of type {types[name]}" if name in types else "is not in the rows"
            raise BadInput(
                f"The column {name}, by which the table is partitioned, {cause}.",
                f"Partition by a column of one of these types: {', '.join(_PARTITION_TYPES)}.",
            )


# -- in the workers ----------------------------------------------------------------------------------------------------


def _write(folder: str, prefix: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the batches of a task, which are sorted by their partitions; return a row for each file."""
    system, path = _place(folder)
    system.create_dir(path, recursive=True)
    for key, pieces in groupby(_pieces(batches), key=itemgetter(0)):
        name = f"{prefix}-{uuid4().hex}.parquet"
        size, stats = _write_file(system, f"{path}/{name}", schema, (piece for _, piece in pieces))
        yield pa.RecordBatch.from_pydict({"name": [name], "size": [size], "partition": [key], "stats": [stats]})


def _place(folder: str) -> tuple[fs.FileSystem, str]:
    """The file system of a folder, and the path there."""
    if folder.startswith("file:"):
        folder = "/" + folder.removeprefix("file:").lstrip("/")
    return (fs.LocalFileSystem(), folder) if folder.startswith("/") else fs.FileSystem.from_uri(folder)


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The batches, cut where the partition changes."""
    for batch in batches:
        runs = pc.run_end_encode(batch.column(KEY))
        start = 0
        for end, key in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            yield key, batch.slice(start, end - start)
            start = end


def _write_file(
    system: fs.FileSystem, path: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> tuple[int, str]:
    closed: list[pq.FileMetaData] = []
    with system.open_output_stream(path) as stream:
        with pq.ParquetWriter(stream, schema, metadata_collector=closed) as writer:
            for group in _row_groups(batches, schema):
                writer.write_table(group)
        return stream.tell(), _stats(closed[0])


def _row_groups(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        columns = [_column(batch, field) for field in schema]
        held.append(pa.RecordBatch.from_arrays(columns, schema=schema))
        size += held[-1].nbytes
        if size >= ROW_GROUP:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, field.type)
    return batch.column(field.name).cast(field.type)


def _stats(metadata: pq.FileMetaData) -> str:
    """The number of rows, and by column that of nulls, the least and the greatest value, as far as Parquet has them."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    columns = metadata.schema.to_arrow_schema().names
    for number in range(metadata.num_columns):
        name = metadata.schema.column(number).path
        chunks = [metadata.row_group(group).column(number) for group in range(metadata.num_row_groups)]
        found = [chunk.statistics for chunk in chunks]
        if name not in columns or not all(s and s.has_null_count for s in found):
            continue
        nulls[name] = sum(each.null_count for each in found)
        # A row group of nulls has no least value.
        found = [each for each in found if each.num_values]
        if found and all(each.has_min_max for each in found):
            low, high = _shown(min(each.min for each in found)), _shown(max(each.max for each in found))
            if low is not None and high is not None:
                least[name], greatest[name] = low, high
    stats = {"numRecords": metadata.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}
    return json.dumps(stats, ensure_ascii=False)


def _shown(value: Any) -> Any:
    """A value as Delta's statistics have it, or None: they can do without."""
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}" if value.tzinfo else None
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str):
        return value if len(value) <= LONGEST else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
