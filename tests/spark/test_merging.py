"""Delta as a sink that replaces the rows with the same key: once, whatever breaks off, and as every reader sees it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as f

import tablequeue
from tablequeue import Database
from tablequeue.errors import BadInput
from tablequeue.spark.pipeline import Archive, ToDelta, merging, run
from tablequeue.spark.pipeline.file import load
from tablequeue.spark.pipeline.sinks import Batch
from tests.spark.test_lakes import between, of_every_type
from tests.support import refuses


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Database]:
    with tablequeue.connect(f"sqlite:///{tmp_path / 'queues.db'}") as database:
        yield database


@pytest.fixture
def batch(small: Database) -> Batch:
    return Batch("test/keep", "query", 0, small, {})


@pytest.fixture
def sink(tmp_path: Path) -> ToDelta:
    return ToDelta(str(tmp_path / "delta"), merge_on=["n"])


def numbers(spark: Any, start: int, end: int, word: str) -> Any:
    return spark.range(start, end, 1, 2).select(f.col("id").alias("n"), f.lit(word).alias("word"))


def found(sink: ToDelta) -> dict[int, str]:
    rows = DeltaTable(sink.path).to_pyarrow_table().to_pylist()
    assert len({row["n"] for row in rows}) == len(rows)
    return {row["n"]: row["word"] for row in rows}


def orphans(sink: ToDelta) -> set[str]:
    """Files that no version of the table names."""
    table = DeltaTable(sink.path)
    return {*table.vacuum(retention_hours=0, enforce_retention_duration=False, full=True, dry_run=True)} - {
        action["path"] for action in pa.table(table.get_add_actions()).to_pylist()
    }


def test_a_row_replaces_the_one_with_its_key(spark: Any, sink: ToDelta, batch: Batch) -> None:
    sink.write(numbers(spark, 0, 20, "old"), batch)
    for _ in range(2):
        sink.write(numbers(spark, 10, 30, "new"), replace(batch, number=1))
    sink.write(numbers(spark, 0, 20, "late"), batch)
    assert found(sink) == {n: "old" if n < 10 else "new" for n in range(30)}
    assert DeltaTable(sink.path).transaction_version(batch.writer) == 1
    assert not list(Path(sink.path).glob("batch-*.parquet"))


def test_columns_that_come_and_go(spark: Any, sink: ToDelta, batch: Batch) -> None:
    rows = numbers(spark, 0, 4, "old")
    sink.write(rows, batch)
    sink.write(rows.where("n < 2").select("n", f.lit(1.5).alias("half")), replace(batch, number=1))
    sink.write(rows.where("n = 3").select("n"), replace(batch, number=2))
    sink.write(numbers(spark, 4, 5, "new").select("n"), replace(batch, number=3))
    rows = DeltaTable(sink.path).to_pyarrow_table().sort_by("n").to_pylist()
    assert [(row["word"], row["half"]) for row in rows] == [
        ("old", 1.5),
        ("old", 1.5),
        ("old", None),
        ("old", None),
        (None, None),
    ]


def test_every_type_is_merged(spark: Any, sink: ToDelta, batch: Batch) -> None:
    sink.write(spark.range(0).select(f.col("id").cast("int").alias("n")), batch)
    rows = of_every_type(spark)
    for number in (1, 2):
        sink.write(rows, replace(batch, number=number))
        found = DeltaTable(sink.path).to_pyarrow_table().sort_by("n").to_pylist()
        assert found == rows.toArrow().sort_by("n").to_pylist()


def test_what_is_refused(spark: Any, sink: ToDelta, batch: Batch) -> None:
    rows = numbers(spark, 0, 4, "a")
    sink.write(rows, batch)
    batch = replace(batch, number=1)
    new = numbers(spark, 7, 8, "a")
    twice = refuses(BadInput, sink.write, rows.union(new).union(new), batch)
    assert f"Rows of batch 1 for the Delta table {sink.path} have the same n: 7" in twice.cause
    null = rows.withColumn("n", f.when(f.col("n") > 0, f.col("n")))
    assert "column n of the table may not be null" in refuses(BadInput, sink.write, null, batch).cause
    assert "is not in the rows" in refuses(BadInput, sink.write, rows.drop("n"), batch).cause
    half = replace(sink, path=f"{sink.path}2", merge_on=["half"])
    assert "is of type double" in refuses(BadInput, half.write, rows.withColumn("half", f.lit(0.5)), batch).cause
    days = rows.withColumn("day", f.expr("date'9999-12-31' + cast(n as int)"))
    late = refuses(BadInput, replace(sink, path=f"{sink.path}3", merge_on=["day"]).write, days, batch)
    assert "outside the years 1 to 9999" in late.cause
    for setting, words in (("delta.appendOnly", "appendOnly"), ("delta.enableDeletionVectors", "deletion vectors")):
        path = f"{sink.path}-{words}"
        DeltaTable.create(path, pa.schema([("n", pa.int64())]), configuration={setting: "true"})
        assert words in refuses(BadInput, replace(sink, path=path).write, rows.select("n"), batch).cause
    assert found(sink) == dict.fromkeys(range(4), "a")
    assert orphans(sink) == set()
    assert "merge_on=['n']" in refuses(BadInput, ToDelta, "x", merge_on="n").remedy
    assert "merge_on" in refuses(BadInput, Archive, "raw", sink, older_than=1).remedy


def test_a_merge_that_breaks_off_leaves_the_table(
    spark: Any, sink: ToDelta, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_off() -> None:
        raise RuntimeError("broken off")

    rows = numbers(spark, 0, 20, "a")
    between(monkeypatch, break_off)
    with pytest.raises(RuntimeError, match="broken off"):
        sink.write(rows, batch)
    assert found(sink) == {}
    sink.write(rows, batch)
    assert found(sink) == dict.fromkeys(range(20), "a")
    assert len(orphans(sink)) == 2  # of the files that broke off; the others are deleted


def test_others_write_meanwhile(spark: Any, sink: ToDelta, batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = numbers(spark, 0, 20, "a")
    # Another run of the stage, which was thought dead; then another stage, which is not.
    between(monkeypatch, lambda: sink.write(numbers(spark, 0, 30, "dead"), batch))
    sink.write(rows, batch)
    assert found(sink) == dict.fromkeys(range(30), "dead")
    between(monkeypatch, lambda: sink.write(numbers(spark, 10, 40, "other"), replace(batch, stage="test/other")))
    sink.write(rows, replace(batch, number=1))
    assert found(sink) == {n: "a" if n < 20 else "other" for n in range(40)}


@pytest.mark.parametrize("mutant", ["append", "no look for rows with one key"])
def test_a_sink_that_does_not_merge_is_found(
    spark: Any, sink: ToDelta, batch: Batch, mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mutant == "append":
        write = ToDelta.write
        monkeypatch.setattr(ToDelta, "write", lambda self, *given: write(replace(self, merge_on=()), *given))
        test = test_a_row_replaces_the_one_with_its_key
    else:
        monkeypatch.setattr(merging, "check_keys", lambda *given: None)
        test = test_what_is_refused
    with pytest.raises(BaseException, match=r"assert|DID NOT RAISE"):  # pytest.fail is no Exception
        test(spark, sink, batch)


KEYS: dict[str, Any] = {
    "bigint": lambda n: n - 7 if n % 5 else (n - 10) << 40,
    "string": lambda n: "é" * (50 + n % 20) + str(n // 20) if n % 2 else f"{n}'`\\",
    "date": lambda n: date(9999 - n, 12, 31) if n % 2 else date(1 + n, 1, 1),
    "timestamp": lambda n: datetime(9999 - n if n % 2 else 1 + n, 12, 31, 23, 59, 59, 999_999 - n % 2, tzinfo=UTC),
}


@pytest.mark.parametrize(
    ("key", "partition_by"),
    [*(pytest.param(key, (), marks=pytest.mark.nightly) for key in KEYS), ("bigint", ("odd",))],
    ids=[*KEYS, "partitioned"],
)
def test_random_batches_are_a_dict(
    spark: Any, tmp_path: Path, batch: Batch, key: str, partition_by: tuple[str, ...]
) -> None:
    """Each reader finds each row by a filter on each column, with values of which deltalake writes no right bounds."""
    chance = random.Random(key)
    name = "The key.`"
    sink = ToDelta(str(tmp_path / "delta"), partition_by=partition_by, merge_on=[name, *partition_by])
    rows: dict[Any, tuple[Any, ...]] = {}
    big = [Decimal("12345678901234567890123456.789"), Decimal("1.5"), Decimal("-3")]
    for number in range(5):
        changed = {
            KEYS[key](n): (number * 100 + n, chance.choice([float("inf"), 0.5]), chance.choice(big), n % 2)
            for n in chance.sample(range(40), 12)
        }
        rows |= changed
        types = f"k {key}, v int, d double, big decimal(38, 3), odd int"
        frame = spark.createDataFrame([(k, *each) for k, each in changed.items()], types)
        sink.write(frame.withColumnRenamed("k", name).repartition(2), replace(batch, number=number))
    table = DeltaTable(sink.path)
    every = table.to_pyarrow_table().to_pylist()
    assert {row[name]: (row["v"], row["d"], row["big"], row["odd"]) for row in every} == rows
    assert len(every) == len(rows)
    with duckdb.connect() as duck:
        duck.register("lake", table.to_pyarrow_dataset())
        for k, each in chance.sample(sorted(rows.items(), key=str), 5):
            for column, value in zip((name, "v", "d", "big", "odd"), (k, *each), strict=True):
                want = sum(
                    value == (known, *row)[(name, "v", "d", "big", "odd").index(column)] for known, row in rows.items()
                )
                if column == name and key == "string":  # Arrow has no kernel for views of texts
                    continue
                kind = pa.schema(table.schema().to_arrow()).field(column).type
                dataset = table.to_pyarrow_dataset()
                assert dataset.to_table(filter=ds.field(column) == pa.scalar(value, kind)).num_rows == want
        assert duck.execute("select count(*) from lake where d = 'inf'").fetchall() == [
            (sum(each[1] == float("inf") for each in rows.values()),)
        ]
    assert polars.scan_delta(sink.path).filter(polars.col("d") == 0.5).collect().height == sum(
        each[1] == 0.5 for each in rows.values()
    )


def test_the_example_of_the_page(spark: Any, small: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text("utf-8")
    program = page.split("executed by tests/spark/test_merging.py -->\n```py\n")[1].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "customers_of_the_page.py"
    file.write_text(program.replace('("shop")', f'("shop", url="{small.engine.url.render_as_string()}")'))
    changes = small.create_topic("customer_changes")
    for names in (("ada", "bob", "ada"), ("bob", "eve", "bob")):
        changes.push_many({"customer": name, "city": f"{name}{number}"} for number, name in enumerate(names))
        run(load(str(file)), spark, f"{tmp_path}/checkpoints", available_now=True)
    rows = DeltaTable("lake/customers").to_pyarrow_table().select(["customer", "city"]).sort_by("customer")
    assert [*map(tuple, map(dict.values, rows.to_pylist()))] == [("ada", "ada2"), ("bob", "bob2"), ("eve", "eve1")]
