"""Tables that the sinks have written, of random columns and values, as other programs read them with filters.

Each program says by itself what a filter finds: in the table of the lake, and in the rows that were written to it, in
its memory. The two are the same, whatever the statistics of the files spare it.
"""

from __future__ import annotations

import json
import math
import operator
import struct
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyiceberg import expressions as ice
from pyspark.sql.pandas.types import from_arrow_schema

import tablequeue
from tablequeue.bulk.archive import archive
from tablequeue.spark.pipeline import files
from tablequeue.spark.pipeline.sinks import Batch
from tests.nightly import by_night
from tests.spark.test_lakes import TABLE, Lake

Value = Callable[[Random], Any]

SQL = {operator.eq: "=", operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">="}
is_null: Any = ice.IsNull
ICEBERG: dict[Any, Any] = {
    operator.eq: ice.EqualTo,
    operator.lt: ice.LessThan,
    operator.le: ice.LessThanOrEqual,
    operator.gt: ice.GreaterThan,
    operator.ge: ice.GreaterThanOrEqual,
}
SECOND, DAY = 1_000_000, 86_400_000_000
# The first and the last microsecond that Python has.
FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
ODD_TEXTS = ("", "\x00", "\U0010ffff" * 70, "x" * 63 + "\ud7ff" + "y", "é" * 5000, "a b/c=%d", "10", "null")
ODD_NUMBERS = (0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1.5e300)


def whole(bits: int) -> Value:
    return lambda some: some.choice((some.randint(-9, 9), some.getrandbits(bits), -(1 << bits), (1 << bits) - 1))


def decimal(precision: int, scale: int) -> Value:
    def value(some: Random) -> Decimal:
        digits = some.choice((1, precision // 2, precision))
        number = some.choice((some.randrange(10**digits), 10**precision - 1))
        return Decimal(f"{some.choice(('', '-'))}{number}e-{scale}")

    return value


def number(some: Random) -> float:
    return some.choice((some.uniform(-9, 9), some.choice(ODD_NUMBERS)))


def short(some: Random) -> float:
    (found,) = struct.unpack("f", struct.pack("f", some.choice((some.uniform(-9, 9), *ODD_NUMBERS[:5]))))
    return float(found)


def text(some: Random) -> str:
    return some.choice(
        ("".join(chr(some.choice((97, 233, 0x1F600)) + some.randrange(9)) for _ in range(65)), *ODD_TEXTS)
    )


def moment(some: Random) -> int:
    return some.choice((some.randrange(FIRST, LAST), FIRST, FIRST - SECOND, LAST, LAST + SECOND))


# Columns of a table of the lake, and their values.
INNER = pa.struct([("z", pa.float64()), ("l", pa.list_(pa.int32()))])
TYPES: dict[pa.DataType, Value] = {
    pa.int8(): whole(7),
    pa.int16(): whole(15),
    pa.int32(): whole(31),
    pa.int64(): whole(63),
    pa.float32(): short,
    pa.float64(): number,
    pa.decimal128(9, 2): decimal(9, 2),
    pa.decimal128(18, 2): decimal(18, 2),
    pa.decimal128(38, 12): decimal(38, 12),
    pa.decimal128(38, 38): decimal(38, 38),
    pa.bool_(): lambda some: some.random() < 0.5,
    pa.string(): text,
    pa.binary(): lambda some: some.randbytes(some.randrange(5)),
    pa.date32(): lambda some: moment(some) // DAY,
    pa.timestamp("us", "UTC"): moment,
    pa.timestamp("us"): moment,
    pa.struct([("x", pa.int32()), ("y", INNER)]): lambda some: {
        "x": whole(31)(some),
        "y": some.choice((None, {"z": number(some), "l": [1]})),
    },
    pa.list_(pa.int32()): lambda some: [whole(31)(some) for _ in range(some.randrange(3))],
    pa.map_(pa.string(), pa.int64()): lambda some: [(text(some), whole(63)(some))],
}


def random_table(seed: int, name: str) -> pa.Table:
    """A table of some columns. Most columns have no values for which there are no statistics."""
    some = Random(seed)
    columns = {"n": pa.array(range(12), pa.int64())}
    for place, kind in enumerate(some.sample([*TYPES], 7)):
        tame, nulls = some.random() < 0.8, some.choice((0, 0.3, 1))
        values = [None if some.random() < nulls else TYPES[kind](some) for _ in range(12)]
        columns[f"{name}{place}"] = pa.array([None if tame and is_odd(kind, each) else each for each in values], kind)
    return pa.table(columns)


def is_odd(kind: pa.DataType, value: Any) -> bool:
    """Whether the least or the greatest value cannot be said."""
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        value = value * DAY if pa.types.is_date(kind) and value is not None else value
        return value is not None and not FIRST <= value <= LAST
    return isinstance(value, float) and not math.isfinite(value)


def frame(spark: Any, table: pa.Table) -> Any:
    return spark.createDataFrame(table, from_arrow_schema(table.schema, prefer_timestamp_ntz=True))


def ids(table: pa.Table) -> list[int]:
    return sorted(table["n"].to_pylist())


def filters(table: pa.Table) -> Iterator[tuple[str, Any, Any]]:
    """Columns, comparisons and values; None is `is null`."""
    for name in table.column_names:
        yield name, None, None
        if not pa.types.is_nested(table.schema.field(name).type):
            for value in table[name].drop_null().unique()[:3]:
                for compare in SQL:
                    yield name, compare, value


def by_arrow(read: Any, table: pa.Table) -> None:
    for name, compare, value in filters(table):
        field = pc.field((name,))
        where = field.is_null() if compare is None else compare(field, value)
        assert ids(read.to_table(filter=where)) == ids(table.filter(where)), (name, compare, value)
        if compare is None:
            assert ids(read.to_table(filter=field.is_valid())) == ids(table.filter(field.is_valid())), name


def by_polars(read: pl.LazyFrame, table: pa.Table) -> None:
    table = table.select([each.name for each in table.schema if not pa.types.is_map(each.type)])  # it has no maps
    memory = pl.DataFrame(table)
    read = read.select(table.column_names)
    for name, compare, value in filters(table):
        try:
            one = None if value is None else value.as_py()
        except OverflowError:
            continue  # Python has no such value
        where = pl.col(name).is_null() if compare is None else compare(pl.col(name), pl.lit(one, memory.schema[name]))
        assert sorted(read.filter(where).collect()["n"]) == sorted(memory.filter(where)["n"]), (name, compare, value)


def by_duckdb(read: Any, table: pa.Table) -> None:
    """With the filters pushed down, of which it makes values of Python."""
    with duckdb.connect() as duck:
        duck.execute("set timezone = 'UTC'")
        duck.register("lake", read)
        duck.register("memory", table)
        for name, compare, value in filters(table):
            try:
                values = [] if compare is None else [value.as_py()]
            except OverflowError:
                continue
            where = f'"{name}" is null' if compare is None else f'"{name}" {SQL[compare]} ?'
            selects = (" ".join(["select n from", place, "where", where, "order by n"]) for place in ("lake", "memory"))
            found, want = (duck.execute(select, values).fetchall() for select in selects)
            assert found == want, (name, compare, value)


def by_pyiceberg(read: Any, table: pa.Table) -> None:
    """Filters of columns without parts, which are all that it has."""
    for name, compare, value in filters(table):
        if pa.types.is_nested(table.schema.field(name).type):
            continue
        if compare is None:
            assert ids(read.scan(is_null(name)).to_arrow()) == ids(table.filter(pc.field((name,)).is_null())), name
            continue
        try:
            one = value.as_py()
        except OverflowError:
            continue
        if pa.types.is_float32(value.type) and math.isinf(one):
            continue  # it says that no float is as great
        where = ICEBERG[compare](name, one)
        assert ids(read.scan(where).to_arrow()) == ids(table.filter(compare(pc.field((name,)), value))), (name, where)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    url = f"sqlite:///{tmp_path / 'queues.db'}"
    with tablequeue.connect(url) as database:
        lake = Lake(tmp_path, url)
        lake.batch = Batch("test/keep", "query", 0, database, {})
        yield lake


@pytest.mark.parametrize(
    "seed", by_night([*range(7), 15], (0, 1, 15).__contains__)
)  # 15: a struct with a list in it, and bounds of all else
def test_a_filter_finds_in_delta_what_was_written(spark: Any, lake: Lake, seed: int) -> None:
    table = random_table(seed, "a b.é")
    lake.delta.write(frame(spark, table), lake.batch)
    read = DeltaTable(lake.delta.path)
    by_arrow(read.to_pyarrow_dataset(), table)
    by_duckdb(read.to_pyarrow_dataset(), table)
    by_polars(pl.scan_delta(lake.delta.path), table)


@pytest.mark.parametrize("seed", by_night(range(8), (1, 5).__contains__))
def test_a_filter_finds_in_iceberg_what_was_written(spark: Any, lake: Lake, seed: int) -> None:
    table = random_table(seed, "é")  # PyIceberg reads no columns with dots in their names by a filter
    lake.iceberg.write(frame(spark, table), lake.batch)
    catalogue = lake.catalogue()
    read = catalogue.load_table(TABLE)
    by_pyiceberg(read, table)
    by_polars(pl.scan_iceberg(read), table)
    by_duckdb(read.scan().to_arrow(), table)
    catalogue.close()


def test_polars_reads_the_folder_of_an_archive(tmp_path: Path) -> None:
    with tablequeue.connect(f"sqlite:///{tmp_path / 'queues.db'}") as database:
        queue = database.create_queue("mails")
        queue.push_many(range(3))
        queue.complete_many(queue.pop_many(3))
        assert archive(queue, tmp_path / "lake", 0) == 3
    assert sorted(pl.read_parquet(tmp_path / "lake")["payload"]) == ["0", "1", "2"]


def without_a_column(said: dict[str, Any]) -> None:
    del said["minValues"]["text"], said["maxValues"]["text"]


def cut_down(said: dict[str, Any]) -> None:
    said["maxValues"]["text"] = said["maxValues"]["text"][:60]


def by_floating_point(said: dict[str, Any]) -> None:
    said["maxValues"]["price"] = float(said["maxValues"]["price"])


def of_another_calendar(said: dict[str, Any]) -> None:
    said["minValues"]["at"] = said["minValues"]["at"].lstrip("0")


@pytest.mark.parametrize(
    "change",
    [None, without_a_column, cut_down, by_floating_point, of_another_calendar],
    ids=lambda change: getattr(change, "__name__", "none"),
)
def test_statistics_that_lose_rows_are_found(
    spark: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch, change: Callable[[dict[str, Any]], None] | None
) -> None:
    values = {
        "n": pa.array([0, 1], pa.int64()),
        "text": pa.array(["x" * 70, "x"]),
        "price": pa.array([Decimal("12345678901234567890123456.5"), Decimal(1)], pa.decimal128(38, 1)),
        "at": pa.array([FIRST, 0], pa.timestamp("us", "UTC")),
    }
    write = files.write

    def changed(*arguments: Any) -> list[files.DataFile]:
        found = []
        for each in write(*arguments):
            said = json.loads(each.stats)
            if change:
                change(said)
            found.append(each._replace(stats=json.dumps(said)))
        return found

    monkeypatch.setattr(files, "write", changed)
    lake.delta.write(frame(spark, pa.table(values)).coalesce(1), lake.batch)
    with pytest.raises(AssertionError) if change else nullcontext():
        by_arrow(DeltaTable(lake.delta.path).to_pyarrow_dataset(), pa.table(values))


PARTITIONS = {
    "text": pa.array(["eu", "a b/c=%d", "é", "..", "x:y?&#", None, "007", "true"]),
    "whole": pa.array([1, -1, 0, None, 2**31 - 1, 7, 8, 9], pa.int32()),
    "day": pa.array([0, -719162, 2932896, None, 20000, 1, 2, 3], pa.int32()).cast(pa.date32()),
    "yes": pa.array([True, False, None, True, True, False, None, True]),
}


# Each by night alone: a reader may take the columns of several partitions in another way.
@pytest.mark.parametrize(
    "by", by_night([[*PARTITIONS], ["text"], ["whole", "yes"], ["day"]], [*PARTITIONS].__eq__), ids=" and ".join
)
def test_partitions_are_read(spark: Any, lake: Lake, by: list[str]) -> None:
    table = pa.table({"n": pa.array(range(8), pa.int64()), **PARTITIONS})
    for sink in lake.sinks:
        replace(sink, partition_by=by).write(frame(spark, table), lake.batch)  # type: ignore[type-var]
    by_arrow(DeltaTable(lake.delta.path).to_pyarrow_dataset(), table)
    by_duckdb(DeltaTable(lake.delta.path).to_pyarrow_dataset(), table)
    by_polars(pl.scan_delta(lake.delta.path), table)
    catalogue = lake.catalogue()
    read = catalogue.load_table(TABLE)
    by_pyiceberg(read, table)
    by_polars(pl.scan_iceberg(read), table)
    catalogue.close()


def test_an_empty_text_as_a_partition_is_null_in_delta(spark: Any, lake: Lake) -> None:
    table = pa.table({"n": pa.array([0, 1], pa.int64()), "text": ["", None]})
    for sink in lake.sinks:
        replace(sink, partition_by=["text"]).write(frame(spark, table), lake.batch)  # type: ignore[type-var]
    null = pa.table({"n": table["n"], "text": pa.nulls(2, pa.string())})
    by_arrow(DeltaTable(lake.delta.path).to_pyarrow_dataset(), null)
    by_polars(pl.scan_delta(lake.delta.path), null)
    catalogue = lake.catalogue()
    by_pyiceberg(catalogue.load_table(TABLE), table)
    catalogue.close()
