"""Reports by DuckDB, in this process: without Java, and without the time that Spark needs to start."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from glob import escape
from itertools import accumulate, groupby
from pathlib import Path

import duckdb
import pyarrow as pa

from tablequeue.consumer import Consumer
from tablequeue.errors import ReportFailed
from tablequeue.spark.reports import messages
from tablequeue.spark.reports.consumers import COLUMNS
from tablequeue.spark.reports.engine import ByHour, Row

# What Spark calls these functions.
_MACROS = {
    "cardinality(list)": "len(list)",
    "explode(list)": "unnest(list)",
    "percentile_approx(value, share, size)": "quantile_disc(value, share)",
    "regexp_replace(text, pattern, replacement)": "system.main.regexp_replace(text, pattern, replacement, 'g')",
    "sequence(first, last)": "range(first, last + 1)",
    "timestamp_micros(micros)": "make_timestamptz(micros)",
    "try_element_at(list, place)": "list[place]",
    "unix_micros(moment)": "epoch_us(moment)",
}
_TYPES = {
    pa.string(): "varchar",
    pa.int64(): "bigint",
    pa.int32(): "integer",
    pa.timestamp("us", "UTC"): "timestamptz",
    messages.SCHEMA.field(
        "errors"
    ).type: 'struct(attempt integer, "at" timestamptz, consumer varchar, error varchar)[]',
}
_COLUMNS = ", ".join(f"cast({one.name} as {_TYPES[one.type]}) as {one.name}" for one in messages.SCHEMA)
_NOTHING = ", ".join(f"cast(null as {_TYPES[one.type]}) as {one.name}" for one in messages.SCHEMA)


class Duck:
    """An `Engine`; `scratch` is a folder for what does not fit into memory."""

    def __init__(self, scratch: Path) -> None:
        self._connection = duckdb.connect(config={"temp_directory": str(scratch)})
        self._run("set timezone = 'UTC'")
        self._run("set default_null_order = 'nulls_first_on_asc_last_on_desc'")  # as Spark
        for name, text in _MACROS.items():
            self._run(f"create temp macro {name} as {text}")

    def close(self) -> None:
        self._connection.close()

    def load(self, name: str, table: pa.Table) -> None:
        self._connection.register("given", table)
        self.keep(name, "select * from given")
        self._connection.unregister("given")

    def history(self, name: str, queue: Consumer, since: datetime | None) -> None:
        self.load(name, messages.ended(queue, since))

    def archived(self, name: str, queue: Consumer, files: Sequence[str]) -> None:
        self.load(name, messages.archived(queue, files))

    def open(self, name: str, folders: Sequence[Path], within: str = "true") -> None:
        parts = ((folder, part) for folder in folders for part in ("*.parquet", "day=*/*.parquet"))
        files = [_quoted(f"{escape(str(folder))}/{part}") for folder, part in parts if any(folder.glob(part))]
        if not files:
            self.define(name, f"select cast(null as varchar) as queue, {_NOTHING} where false")
            return
        read = (
            f"read_parquet([{', '.join(files)}], union_by_name=true, hive_partitioning=true, hive_types_autocast=false)"
        )
        self.define(name, f"select queue, {_COLUMNS} from {read} where {within}")

    def define(self, name: str, text: str) -> None:
        self._run(f"create or replace temp view {name} as {text}")

    def keep(self, name: str, text: str) -> None:
        self._run(f"create or replace temp table {name} as {text}")

    def rows(self, text: str) -> list[Row]:
        return self._arrow(text).to_pylist()

    def by_hour(self, name: str, text: str, row: ByHour) -> None:
        found = self._arrow(f"select * from ({text}) as found order by queue, hour")
        keys = zip(found["queue"].to_pylist(), found["hour"].to_pylist(), strict=True)
        sizes = [len([*group]) for _, group in groupby(keys)]
        hours = [found.slice(end - size, size) for end, size in zip(accumulate(sizes), sizes, strict=True)]
        self.load(name, pa.concat_tables([pa.schema([*COLUMNS.items()]).empty_table(), *map(row, hours)]))

    def add(self, folder: Path, text: str) -> int:
        # Written elsewhere and moved: a file is there as a whole, or not at all.
        with _beside(folder) as fresh:
            count = self._copy(text, fresh, "partition_by (day), filename_pattern 'part-{uuid}'")
            for file in fresh.glob("day=*/*.parquet"):
                (folder / file.parent.name).mkdir(parents=True, exist_ok=True)
                file.replace(folder / file.parent.name / file.name)
        return count

    def replace(self, folder: Path, text: str) -> None:
        with _beside(folder) as fresh:
            fresh.mkdir()
            self._copy(text, fresh / "part.parquet")
            shutil.rmtree(folder, ignore_errors=True)
            fresh.replace(folder)

    # -- private -----------------------------------------------------------------------------------------------------

    def _run(self, text: str) -> None:
        with _refusals():
            self._connection.execute(text)

    def _arrow(self, text: str) -> pa.Table:
        with _refusals():
            return self._connection.sql(text).to_arrow_table()

    def _copy(self, text: str, path: Path, *options: str) -> int:
        copied = f"copy ({text}) to {_quoted(str(path))} ({', '.join(('format parquet', *options))})"
        with _refusals():
            (count,) = self._connection.execute(copied).fetchall()[0]
        return count


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise ReportFailed(
            f"DuckDB failed: {str(error).splitlines()[0]}", "Correct the cause and run the report again."
        ) from error


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """A new folder, which readers of the files do not look into, on the same file system; it is gone in the end."""
    fresh = folder.with_name(f"_{folder.name}")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield fresh
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
