"""Parquet files that the executors write, and that a table then names in one commit of the driver.

A task writes one file after the other and returns a row for each, so neither the driver nor a worker has a batch in its
memory. Each file has a name of its own. What a task leaves that fails, or a batch that is broken off, no table names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Literal, NamedTuple
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema

from tablequeue.bulk.tables import check_case
from tablequeue.errors import BadInput
from tablequeue.spark.pipeline.statistics import Statistics

# `merged` are files of rows that a merge puts into a Delta table: its own files have other rows too.
Format = Literal["delta", "merged", "iceberg"]

# Bytes in memory of a row group: few enough for a worker, and enough for a reader to skip much at once.
ROW_GROUP = 64 << 20
# Parquet has no statistics of longer texts, and PyIceberg takes the partition of a file from these.
LONGEST_PARTITION = 1000
# Bytes of the name of a folder, on most file systems.
LONGEST_NAME = 255
# The folder of null, and of '', which is null in Delta.
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
KEY = "tablequeue partition"
_RETURNS = "name string, size bigint, partition string, stats string"
# What a partition's value is written as is the same in all engines for these types alone.
_PARTITION_TYPES = ("string", "date", "boolean", "tinyint", "smallint", "int", "bigint")


class DataFile(NamedTuple):
    """A file in the folder. `stats` are those of Delta, as JSON; `partition` has the values of all its rows.

    `name` is its path there: for Delta in folders of the values of its partition, from which polars reads them.
    """

    name: str
    size: int
    partition: dict[str, str | None]
    stats: str


def schema_of(rows: DataFrame, partition_by: Sequence[str]) -> pa.Schema:
    """The schema for a table of these rows: everything may be null. Raises `BadInput` for what no table has."""
    _check_partitions(rows, partition_by)
    check_case("rows", rows.columns, ())
    for name, kind in rows.dtypes:
        if kind == "void":
            raise BadInput(f"The column {name} has no type.", f"Cast it: f.lit(None).cast('string').alias({name!r}).")
    return to_arrow_schema(rows.schema.toNullable(), timezone="UTC")


def write(
    rows: DataFrame, folder: str, prefix: str, schema: pa.Schema, partition_by: Sequence[str], format: Format
) -> list[DataFile]:
    """Write the rows as files with a schema, those of each partition apart. Columns that the rows lack are null."""
    _check_partitions(rows, partition_by)
    _check_nulls(schema, rows.columns)
    required = {each.name for each in schema if not each.nullable}
    if format == "delta":  # its files are without them
        schema = pa.schema([each for each in schema if each.name not in partition_by])
    texts = [column(name).cast("string").alias(name) for name in partition_by]
    types = dict(rows.dtypes)
    rows = rows.withColumn(KEY, f.to_json(f.struct(*texts), {"ignoreNullFields": "false"}) if texts else f.lit("{}"))
    if texts:
        rows = rows.sortWithinPartitions(KEY)
    # mapInArrow does not find columns with dots in their names.
    named = partial(_write, folder, prefix, schema, format, rows.columns)
    written = rows.toDF(*(f"c{number}" for number in range(len(rows.columns)))).mapInArrow(named, _RETURNS).collect()
    found = [DataFile(each.name, each.size, json.loads(each.partition), each.stats) for each in written]
    if format == "delta":  # '' is null there
        found = [
            each._replace(partition={name: text or None for name, text in each.partition.items()}) for each in found
        ]
    for name, value in {part for each in found for part in each.partition.items()}:
        if value is None:
            if name in required:
                raise has_null(name)
            continue
        if len(value) > LONGEST_PARTITION or (format != "iceberg" and len(_folder(name, value)) > LONGEST_NAME):
            raise BadInput(
                f"The column {name}, by which the table is partitioned, has a text of {len(value)} characters, which "
                "is too long.",
                "Partition by shorter texts.",
            )
        if types[name] == "date" and not re.fullmatch(r"\d{4}-\d\d-\d\d", value):
            raise BadInput(
                f"The column {name}, by which the table is partitioned, has the day {value}, which most programs "
                "cannot read.",
                "Partition by days from the year 1 to 9999.",
            )
    return found


def column(name: str) -> Column:
    """A column by its name, which may have dots."""
    return f.col(quoted(name))


def quoted(name: str) -> str:
    """The name of a column in SQL."""
    return "`" + name.replace("`", "``") + "`"


def _check_partitions(rows: DataFrame, partition_by: Sequence[str]) -> None:
    types = dict(rows.dtypes)
    for name in partition_by:
        if types.get(name) not in _PARTITION_TYPES:
            cause = f"is of type {types[name]}" if name in types else "is not in the rows"
            raise BadInput(
                f"The column {name}, by which the table is partitioned, {cause}.",
                f"Partition by a column of one of these types: {', '.join(_PARTITION_TYPES)}.",
            )


def _check_nulls(schema: pa.Schema, columns: Sequence[str]) -> None:
    for field in schema:
        if not field.nullable and field.name not in columns:
            raise BadInput(f"The column {field.name} of the table may not be null, and the rows lack it.", "Add it.")


def has_null(column: str) -> BadInput:
    return BadInput(f"The column {column} of the table may not be null, and a row has null.", "Fill it in the stage.")


# -- in the workers ----------------------------------------------------------------------------------------------------


def _write(
    folder: str,
    prefix: str,
    schema: pa.Schema,
    format: Format,
    names: Sequence[str],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Write the batches of a task, which are sorted by their partitions; return a row for each file."""
    system, path = place(folder)
    for key, pieces in groupby(_pieces(each.rename_columns([*names]) for each in batches), key=itemgetter(0)):
        folders = [_folder(*each) for each in json.loads(key).items()] if format == "delta" else []
        if any(len(each) > LONGEST_NAME for each in folders):
            folders = []  # the driver refuses it
        name = "/".join([*folders, f"{prefix}-{uuid4().hex}.parquet"])
        system.create_dir("/".join([path, *folders]), recursive=True)
        size, stats = _write_file(system, f"{path}/{name}", schema, format, (piece for _, piece in pieces))
        yield pa.RecordBatch.from_pydict({"name": [name], "size": [size], "partition": [key], "stats": [stats]})


def _folder(name: str, value: str | None) -> str:
    """The folder of a value of a partition, as Hive and all after it name it."""
    return f"{quote(name, safe='')}={quote(value, safe='') if value else NO_VALUE}"


def place(folder: str) -> tuple[fs.FileSystem, str]:
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
    system: fs.FileSystem, path: str, schema: pa.Schema, format: Format, batches: Iterable[pa.RecordBatch]
) -> tuple[int, str]:
    """Write a file; return its size, and its statistics for Delta."""
    statistics = Statistics(pa.struct(schema))

    def fitted() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = [_column(batch, field) for field in schema]
            found = pa.RecordBatch.from_arrays(columns, schema=schema)
            if format == "delta":
                statistics.add(found.to_struct_array())
            yield found

    size, metadata = _parquet(system, path, schema, _row_groups(fitted()))
    if format == "iceberg" and len(readable := _readable(metadata)) < metadata.num_columns:
        with_all = f"{path.removesuffix('.parquet')}-with-all.parquet"
        system.move(path, with_all)
        with system.open_input_file(with_all) as file:
            read = pq.ParquetFile(file)
            groups = (read.read_row_group(number) for number in range(read.num_row_groups))
            size, _ = _parquet(system, path, schema, groups, readable)
        system.delete_file(with_all)
    return size, statistics.text()


def _parquet(
    system: fs.FileSystem, path: str, schema: pa.Schema, groups: Iterable[pa.Table], described: bool | list[str] = True
) -> tuple[int, pq.FileMetaData]:
    """Write a file with statistics of the described columns; return its size and its metadata."""
    closed: list[pq.FileMetaData] = []
    with system.open_output_stream(path) as stream:
        with pq.ParquetWriter(stream, schema, metadata_collector=closed, write_statistics=described) as writer:
            for group in groups:
                writer.write_table(group)
        return stream.tell(), closed[0]


def _readable(metadata: pq.FileMetaData) -> list[str]:
    """The columns of which Python can read the statistics, as PyIceberg does: its times end with the year 9999."""
    found: list[str] = []
    for number in range(metadata.num_columns):
        chunks = [metadata.row_group(group).column(number) for group in range(metadata.num_row_groups)]
        with suppress(OverflowError, UnicodeDecodeError):
            for each in chunks:
                if each.is_stats_set and each.statistics.has_min_max:
                    _ = each.statistics.min, each.statistics.max
            found.append(chunks[0].path_in_schema)
    return found


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= ROW_GROUP:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    there = field.name in batch.schema.names
    values = batch.column(field.name).cast(field.type) if there else pa.nulls(batch.num_rows, field.type)
    if values.null_count and not field.nullable:
        raise has_null(field.name)
    return values
