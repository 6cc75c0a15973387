"""Rows of a batch that replace those with the same key in a Delta table: deltalake merges files of the executors.

The files are beside those of the table, and no version names them. They are deleted after the commit; those of a batch
that was broken off are deleted by `DeltaTable.vacuum`, as every other file of such a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tablequeue.bulk.tables import same_key
from tablequeue.errors import BadInput
from tablequeue.spark.pipeline.files import column, has_null, place, quoted

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

# The bounds of these types are exact, as merges need them: they read only files whose bounds may have the keys.
_TYPES = ("string", "date", "timestamp", "timestamp_ntz", "tinyint", "smallint", "int", "bigint")
# Of these, only values of the years 1 to 9999 have bounds. Of `timestamp`, in UTC.
_IN_YEARS = {
    "date": lambda value: f.year(value).between(1, 9999),
    "timestamp_ntz": lambda value: f.year(value).between(1, 9999),
    "timestamp": lambda value: f.unix_seconds(value).between(-62_135_596_800, 253_402_300_799),
}
# The settings of a table that name the columns with bounds.
BOUNDS = "delta.dataSkippingStatsColumns"
_BOUNDS = (BOUNDS, "delta.dataSkippingNumIndexedCols")


def settings(key: Sequence[str]) -> dict[str, str]:
    """The settings of a table: only the key has bounds. Those that deltalake writes for others are not always right,
    and a filter would miss rows."""
    return {BOUNDS: ",".join(map(quoted, key))}


def check_table(table: DeltaTable, name: str, key: Sequence[str]) -> None:
    """Raise `BadInput` if no row of the table may be replaced, and give the table its settings, if it has none."""
    there = table.metadata().configuration
    if there.get("delta.appendOnly") == "true":
        raise BadInput(f"The {name} allows no change of its rows (delta.appendOnly).", "Leave out merge_on.")
    if "deletionVectors" in (table.protocol().writer_features or ()):
        raise BadInput(
            f"The {name} may have deletion vectors, which a merge could lose.", "Write to a table without this feature."
        )
    if not any(setting in there for setting in _BOUNDS):
        table.alter.set_table_properties(settings(key))


def check_keys(rows: DataFrame, name: str, key: Sequence[str], batch: int) -> None:
    """Raise `BadInput` for a key that is null, that two rows have, or that is in no row."""
    types = dict(rows.dtypes)
    for each in key:
        if types.get(each) not in _TYPES:
            cause = f"is of type {types[each]}" if each in types else "is not in the rows"
            raise BadInput(
                f"The column {each} of merge_on {cause}.", f"Merge on columns of these types: {', '.join(_TYPES)}."
            )
    keys = [column(each).alias(f"k{number}") for number, each in enumerate(key)]
    counted = rows.groupBy(*keys).agg(f.count("*").alias("rows"))
    wrong = f.col("rows") > 1
    for number, each in enumerate(key):
        value = f.col(f"k{number}")
        wrong |= value.isNull()
        if in_years := _IN_YEARS.get(types[each]):
            wrong |= ~in_years(value)
    found = counted.where(wrong).select("rows", *(f.col(f"k{number}").cast("string") for number in range(len(key))))
    first = found.limit(3).collect()
    for row in first:
        for each, value in zip(key, row[1:], strict=True):
            if value is None:
                raise has_null(each)
        if row["rows"] == 1:
            raise BadInput(
                f"The key {', '.join(row[1:])} of the {name} is outside the years 1 to 9999.", "Leave out the row."
            )
    if first:
        raise same_key(name, batch, key, [row[1:] for row in first])


def merge(
    table: DeltaTable, paths: Sequence[str], columns: Sequence[str], key: Sequence[str], once: CommitProperties
) -> None:
    """Replace the rows with the keys of the rows in the files, and insert the others, in one version of the table."""
    every = pa.schema(table.schema().to_arrow())
    schema = pa.schema([each for each in every if each.name in columns])
    source = pa.RecordBatchReader.from_batches(schema, _read(paths, schema))
    same = " and ".join(f"t.{quoted(each)} = s.{quoted(each)}" for each in key)
    values = {quoted(each): f"s.{quoted(each)}" for each in schema.names}
    # Not streamed: so it knows the least and the greatest key, and skips the files that have none in between.
    merger = table.merge(source, same, "s", "t", streamed_exec=False, commit_properties=once)
    if changed := {quoted(each): values[quoted(each)] for each in schema.names if each not in key}:
        merger = merger.when_matched_update(changed)
    merger.when_not_matched_insert(values).execute()


def delete(paths: Sequence[str]) -> None:
    """Delete the files, which no version names. A crash, or a file system that refuses, leaves them."""
    for path in paths:
        system, inside = place(path)
        with suppress(OSError):
            system.delete_file(inside)


def _read(paths: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for path in paths:
        system, inside = place(path)
        with system.open_input_file(inside) as file:
            for batch in pq.ParquetFile(file).iter_batches():
                yield batch.select(schema.names).cast(schema)
