"""Delta and Iceberg as sinks: other engines read the history of the queue there, and a batch is there once, whatever
breaks off between its files and its commit, and whoever else commits."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table import StaticTable
from pyiceberg.types import ListType, LongType, NestedField
from pyspark.errors import PythonException
from pyspark.sql import functions as f

import tablequeue
from tablequeue import Database
from tablequeue.bulk.catalogue import Catalogue
from tablequeue.errors import BadInput, DriverMissing
from tablequeue.spark.pipeline import FromQueue, ToDelta, ToIceberg, files, run
from tablequeue.spark.pipeline.sinks import Batch, Sink
from tests.servers import Place
from tests.spark import named
from tests.support import refuses

TABLE = "lake.numbers"


class Lake:
    """A table of each kind, in a folder and in the database of the queues."""

    batch: Batch

    def __init__(self, folder: Path, url: str, schema: str | None = None) -> None:
        self.folder, self.url, self.schema = folder, url, schema
        self.delta = ToDelta(str(folder / "delta"))
        self.iceberg = ToIceberg(TABLE, str(folder))
        self.sinks: tuple[Sink, ...] = (self.delta, self.iceberg)

    def catalogue(self) -> SqlCatalog:
        """As its users open it."""
        url = sa.make_url(self.url)
        if self.schema and url.get_backend_name() == "postgresql":
            url = url.update_query_dict({"options": f"-csearch_path={self.schema}"})
        elif self.schema:
            url = url.set(database=self.schema)
        return SqlCatalog("tablequeue", uri=url.render_as_string(hide_password=False))

    def read(self, sink: Sink) -> pa.Table:
        if isinstance(sink, ToDelta):
            return DeltaTable(sink.path).to_pyarrow_table()
        catalogue = self.catalogue()
        try:
            return catalogue.load_table(TABLE).scan().to_arrow()
        finally:
            catalogue.close()

    def files(self, sink: Sink) -> list[str]:
        """The files that the table names."""
        if isinstance(sink, ToDelta):
            return DeltaTable(sink.path).file_uris()
        catalogue = self.catalogue()
        try:
            found = catalogue.load_table(TABLE).inspect.files()["file_path"].to_pylist()
            return [path.removeprefix("file://") for path in found]
        finally:
            catalogue.close()

    def written(self, sink: Sink) -> list[str]:
        """All files, also those that no table names."""
        folder = Path(self.delta.path) if isinstance(sink, ToDelta) else self.folder / "lake" / "numbers"
        return [str(path) for path in folder.rglob("*.parquet")]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Database]:
    with tablequeue.connect(f"sqlite:///{tmp_path / 'queues.db'}") as database:
        database.create_queue("raw")
        yield database


@pytest.fixture
def lake(small: Database, tmp_path: Path) -> Lake:
    return Lake(tmp_path, small.engine.url.render_as_string())


@pytest.fixture(params=["delta", "iceberg"])
def sink(request: pytest.FixtureRequest, lake: Lake) -> Any:
    return getattr(lake, request.param)


@pytest.fixture
def batch(small: Database) -> Batch:
    return Batch("test/keep", "query", 0, small, {})


@pytest.fixture
def rows(spark: Any) -> Any:
    return numbers(spark, 20)


def numbers(spark: Any, end: int) -> Any:
    return spark.range(0, end, 1, 2).select(f.col("id").alias("n"), (f.col("id") % 2).cast("int").alias("odd"))


def found(lake: Lake, sink: Sink) -> list[int]:
    return sorted(lake.read(sink)["n"].to_pylist())


def between(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Act once, when the files of a batch are written and not committed."""
    write = files.write

    def acting(*arguments: Any) -> Any:
        written = write(*arguments)
        monkeypatch.setattr(files, "write", write)
        act()
        return written

    monkeypatch.setattr(files, "write", acting)


def test_other_engines_read_the_history(spark: Any, db: Database, place: Place, tmp_path: Path) -> None:
    raw = db.create_queue("raw", groups="fair")
    for n in range(30):
        raw.push({"n": n, "text": "é" * n}, group=None if n % 3 else "a b/c=%d, and longer")
    lake = Lake(tmp_path, place.url, place.schema)
    partitioned = (replace(lake.delta, partition_by=["group"]), replace(lake.iceberg, partition_by=["group"]))
    pipeline = named.pipeline(place)
    pipeline.stage(FromQueue("raw", 20), *partitioned, name="keep")(
        lambda messages: messages.select("id", "payload", "group", "pushed_at", (f.col("id") * 0.5).alias("half"))
    )
    run(pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)

    history = {
        message.id: (message.payload, message.group, message.pushed_at, message.id * 0.5) for message in raw.history()
    }
    assert len(history) == 30

    def check(rows: list[dict[str, Any]]) -> None:
        assert len(rows) == 30
        for row in rows:
            assert (json.loads(row["payload"]), row["group"], row["pushed_at"], row["half"]) == history[row["id"]]

    for sink in lake.sinks:
        check(lake.read(sink).to_pylist())
    with duckdb.connect() as duck:
        duck.execute("set timezone = 'UTC'")
        for name, table in (("of_delta", lake.read(lake.delta)), ("of_iceberg", lake.read(lake.iceberg))):
            duck.register(name, table)
        same = "(from of_delta select id, pushed_at) except (from of_iceberg select id, pushed_at)"
        assert duck.execute(same).fetchall() == []
        ids = duck.execute("select id from read_parquet($files) order by id", {"files": lake.files(lake.iceberg)})
        assert [row[0] for row in ids.fetchall()] == sorted(history)
    for sink in lake.sinks:
        read = spark.read.parquet(*lake.files(sink)).select("id", "payload").collect()
        assert {row.id: json.loads(row.payload) for row in read} == {key: each[0] for key, each in history.items()}
    one = DeltaTable(lake.delta.path).to_pyarrow_table(filters=[("group", "=", "a b/c=%d, and longer")])
    assert sorted(one["id"].to_pylist()) == sorted(key for key, each in history.items() if each[1])

    password = sa.make_url(place.url).password
    if password:
        metadata = [path.read_text() for path in (tmp_path / "lake").rglob("*.json")]
        assert metadata
        assert not any(password in text for text in metadata)


def test_a_batch_again_adds_nothing(rows: Any, sink: Any, lake: Lake, batch: Batch) -> None:
    for number in (0, 0, 1, 1, 0):
        sink.write(rows, replace(batch, number=number))
    assert found(lake, sink) == sorted([*range(20)] * 2)
    sink.write(rows, replace(batch, query="of a new checkpoint"))
    assert found(lake, sink) == sorted([*range(20)] * 3)


def test_a_sink_that_does_not_look_at_the_number_is_found(
    rows: Any, sink: Any, lake: Lake, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Catalogue, "last", lambda self, table: -1)
    monkeypatch.setattr("tablequeue.bulk.catalogue.Once.validate", lambda self, metadata: None)
    monkeypatch.setattr("tablequeue.spark.pipeline.delta._has", lambda table, batch: False)
    for _ in range(2):
        sink.write(rows, batch)
    assert found(lake, sink) == sorted([*range(20)] * 2)


def test_files_of_a_batch_that_broke_off_are_in_no_table(
    rows: Any, sink: Any, lake: Lake, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_off() -> None:
        raise RuntimeError("broken off")

    between(monkeypatch, break_off)
    with pytest.raises(RuntimeError, match="broken off"):
        sink.write(rows, batch)
    assert found(lake, sink) == []
    sink.write(rows, batch)
    assert found(lake, sink) == [*range(20)]
    orphans = {*lake.written(sink)} - {*lake.files(sink)}
    assert len(orphans) == 2
    if isinstance(sink, ToDelta):
        table = DeltaTable(sink.path)
        gone = table.vacuum(retention_hours=0, enforce_retention_duration=False, full=True, dry_run=False)
        assert {f"{sink.path}/{name}" for name in gone} == orphans
        assert found(lake, sink) == [*range(20)]


@pytest.mark.parametrize("checked", [True, False], ids=["checked", "a commit that does not check"])
def test_another_run_commits_the_batch_meanwhile(
    rows: Any, lake: Lake, batch: Batch, monkeypatch: pytest.MonkeyPatch, checked: bool
) -> None:
    """As a driver does that was thought dead."""
    if not checked:
        monkeypatch.setattr("tablequeue.bulk.catalogue.Once.validate", lambda self, metadata: None)
    for sink in lake.sinks if checked else [lake.iceberg]:
        sink.write(rows.limit(0), replace(batch, query="before"))
        between(monkeypatch, lambda sink=sink: sink.write(rows, batch))  # type: ignore[misc]
        sink.write(rows, batch)
        assert found(lake, sink) == sorted([*range(20)] * (1 if checked else 2))


def test_other_stages_commit_meanwhile(
    rows: Any, sink: Any, lake: Lake, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    between(monkeypatch, lambda: sink.write(rows, replace(batch, stage="test/other")))
    sink.write(rows, batch)
    assert found(lake, sink) == sorted([*range(20)] * 2)


def test_stages_make_a_table_at_the_same_time(rows: Any, sink: Any, lake: Lake, batch: Batch) -> None:
    with ThreadPoolExecutor() as threads:
        for done in [threads.submit(sink.write, rows, replace(batch, stage=f"test/{n}")) for n in range(3)]:
            done.result()
    assert found(lake, sink) == sorted([*range(20)] * 3)


def test_a_catalogue_that_does_not_answer(rows: Any, lake: Lake, batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    """It commits, and the driver does not learn of it: the next run finds the batch."""
    commit = Catalogue.commit_table

    def lose_the_answer(self: Catalogue, *arguments: Any) -> Any:
        answer = commit(self, *arguments)
        if any(getattr(update, "snapshot", None) for update in arguments[2]):
            raise sa.exc.OperationalError("commit", {}, Exception("the server closed the connection"))
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(Catalogue, "commit_table", lose_the_answer)
        with pytest.raises(sa.exc.OperationalError):
            lake.iceberg.write(rows, batch)
    assert found(lake, lake.iceberg) == [*range(20)]
    lake.iceberg.write(rows, batch)
    assert found(lake, lake.iceberg) == [*range(20)]


def test_a_snapshot_names_its_batch_and_may_expire(rows: Any, lake: Lake, batch: Batch) -> None:
    for number in range(2):
        lake.iceberg.write(rows, replace(batch, number=number))
    lake.iceberg.write(rows, replace(batch, stage="test/other"))
    catalogue = lake.catalogue()
    table = catalogue.load_table(TABLE)
    summaries = [each.summary for each in table.snapshots()]
    names = [each and (each["tablequeue.writer"], each["tablequeue.batch"]) for each in summaries]
    assert names == [("test/keep:query", "0"), ("test/keep:query", "1"), ("test/other:query", "0")]
    table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in table.snapshots()][:2]).commit()
    catalogue.close()
    lake.iceberg.write(rows, replace(batch, number=1))
    assert found(lake, lake.iceberg) == sorted([*range(20)] * 3)


def test_columns_that_come_and_go(rows: Any, sink: Any, lake: Lake, batch: Batch) -> None:
    sink.write(rows, batch)
    sink.write(rows.withColumn("word", f.lit("new")).drop("odd"), replace(batch, number=1))
    assert Counter((row["odd"] is None, row["word"]) for row in lake.read(sink).to_pylist()) == {
        (False, None): 20,
        (True, "new"): 20,
    }
    text = rows.withColumn("n", f.col("n").cast("string"))
    assert "ast the column" in refuses(BadInput, sink.write, text, replace(batch, number=2)).remedy
    assert len(found(lake, sink)) == 40


def of_every_type(spark: Any) -> Any:
    """A row with values, and one with nulls."""
    one = spark.sql("""select 1 as n, 2L as long, 1.5D as double, 2.25BD as dec, true as yes, 'é' as text,
        X'00ff' as bin, date'2026-01-02' as day, timestamp'2026-01-02 03:04:05.678901' as at,
        timestamp_ntz'2026-01-02 03:04:05' as local,
        array(named_struct('at', timestamp'2026-01-02 03:04:05', 'n', null)) as nested, map('a', 1) as pairs""")
    one = one.withColumn("nested", f.col("nested").cast("array<struct<at: timestamp, n: int>>"))
    return one.unionByName(one.select(f.lit(2).alias("n")), allowMissingColumns=True)


def test_every_type_is_read_back(spark: Any, sink: Any, lake: Lake, batch: Batch) -> None:
    both = of_every_type(spark)
    sink.write(both, batch)
    # By Arrow from the files: PyIceberg itself reads a null as an empty list.
    assert pq.read_table(lake.files(sink)).sort_by("n").to_pylist() == both.toArrow().sort_by("n").to_pylist()


def test_what_is_refused(
    spark: Any, rows: Any, sink: Any, lake: Lake, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuses(BadInput, replace(sink, partition_by=["nix"]).write, rows, batch)
    refuses(BadInput, replace(sink, partition_by=["at"]).write, rows.withColumn("at", f.current_timestamp()), batch)
    refuses(BadInput, sink.write, rows.withColumn("nothing", f.lit(None)), batch)
    refuses(BadInput, sink.write, rows.withColumn("span", f.expr("interval '1' second")), batch)
    sink.write(rows, batch)
    error = refuses(BadInput, replace(sink, partition_by=["odd"]).write, rows, replace(batch, number=1))
    assert "is partitioned by nothing" in error.cause
    monkeypatch.setattr("tablequeue.bulk.tables.find_spec", lambda name: None)
    refuses(DriverMissing, type(sink), "lake.x")


def test_partitions_of_a_table_that_is_there(rows: Any, sink: Any, lake: Lake, batch: Batch) -> None:
    replace(sink, partition_by=["odd"]).write(rows, batch)
    sink.write(rows, replace(batch, number=1))
    assert len({*lake.files(sink)}) == 8
    assert "is not in the rows" in refuses(BadInput, sink.write, rows.drop("odd"), replace(batch, number=2)).cause
    texts = rows.withColumn("word", f.repeat(f.lit("x"), 1001))
    other = replace(
        sink, partition_by=["word"], **{"path": f"{sink.path}2"} if sink is lake.delta else {"table": "a.b"}
    )
    assert "a text of 1001 characters" in refuses(BadInput, other.write, texts, batch).cause
    assert len(found(lake, sink)) == 40


OTHERS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "constraints": ({}, {}),
    "is generated": ({"metadata": {"delta.generationExpression": "n * 2"}}, {}),
    "is an identity": ({"metadata": {"delta.identity.start": 1}}, {}),
    "has an invariant": ({"metadata": {"delta.invariants": '{"expression": {"expression": "g > 0"}}'}}, {}),
    "other names in the files": ({}, {"delta.columnMapping.mode": "name"}),
    "rows lack it": ({"nullable": False}, {}),
}


@pytest.mark.parametrize("words", OTHERS)
def test_a_delta_table_whose_rules_a_sink_cannot_keep_is_refused(
    rows: Any, lake: Lake, batch: Batch, words: str
) -> None:
    field, configuration = OTHERS[words]
    schema = Schema([Field("n", PrimitiveType("long")), Field("g", PrimitiveType("long"), **field)])
    DeltaTable.create(lake.delta.path, schema, configuration=configuration)
    if words == "constraints":
        DeltaTable(lake.delta.path).alter.add_constraint({"small": "n < 100"})
    assert words in refuses(BadInput, lake.delta.write, rows.select("n"), batch).cause
    assert lake.written(lake.delta) == []


def test_a_sink_that_does_not_look_for_rules_is_found(
    rows: Any, lake: Lake, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tablequeue.spark.pipeline.delta.RULES", {})
    with pytest.raises(BaseException, match="DID NOT RAISE"):  # pytest.fail is no Exception
        test_a_delta_table_whose_rules_a_sink_cannot_keep_is_refused(rows, lake, batch, "is generated")


@pytest.mark.parametrize("setting", ["delta.appendOnly", "delta.enableChangeDataFeed"])
def test_a_delta_table_whose_rules_a_sink_keeps_is_written(rows: Any, lake: Lake, batch: Batch, setting: str) -> None:
    schema = Schema([Field("n", PrimitiveType("long"), nullable=False)])
    DeltaTable.create(lake.delta.path, schema, configuration={setting: "true"})
    lake.delta.write(rows.select("n"), batch)
    assert found(lake, lake.delta) == [*range(20)]


@pytest.mark.parametrize("partitions", [[], ["z"]], ids=["a column", "a partition"])
def test_a_null_is_in_no_column_of_delta_that_may_not_be_null(
    rows: Any, lake: Lake, batch: Batch, partitions: list[str]
) -> None:
    schema = Schema([Field("n", PrimitiveType("long")), Field("z", PrimitiveType("long"), nullable=False)])
    DeltaTable.create(lake.delta.path, schema, partition_by=partitions)
    with pytest.raises((BadInput, PythonException), match="The column z of the table may not be null, and a row"):
        lake.delta.write(rows.select("n", f.when(f.col("n") < 19, f.col("n")).alias("z")), batch)
    assert found(lake, lake.delta) == []


def test_a_null_is_in_no_column_of_iceberg_that_may_not_be_null(rows: Any, lake: Lake, batch: Batch) -> None:
    catalogue = lake.catalogue()
    catalogue.create_namespace("lake")
    parts = ListType(3, LongType(), element_required=True)
    fields = NestedField(1, "n", LongType(), required=True), NestedField(2, "l", parts, required=False)
    catalogue.create_table(TABLE, IcebergSchema(*fields), location=f"file://{lake.folder}/lake/numbers")
    null = f.when(f.col("n") < 19, f.col("n"))
    with pytest.raises(PythonException, match="The column n of the table may not be null"):
        lake.iceberg.write(rows.select(null.alias("n")), batch)
    listed = rows.select("n", f.array(null).alias("l"))
    assert "parts that may not be null" in refuses(BadInput, lake.iceberg.write, listed, batch).cause
    assert catalogue.load_table(TABLE).schema().find_field("n").required
    lake.iceberg.write(rows.select("n"), batch)
    assert found(lake, lake.iceberg) == [*range(20)]
    catalogue.close()


def test_names_that_differ_in_case_only_are_refused(rows: Any, sink: Any, lake: Lake, batch: Batch) -> None:
    sink.write(rows, batch)
    other = rows.withColumnRenamed("odd", "Odd")
    assert "differ only in case" in refuses(BadInput, sink.write, other, replace(batch, number=1)).cause
    assert len(found(lake, sink)) == 20


def test_folders_are_taken_literally(rows: Any, batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ToDelta("a b").write(rows, batch)
    ToDelta(f"file://{tmp_path}/a%20url").write(rows, batch)
    ToIceberg("a.b", "an iceberg%20folder").write(rows, batch)
    for table in ("a b", "a url"):
        assert DeltaTable(str(tmp_path / table)).to_pyarrow_table().num_rows == 20
    metadata = max(Path("an iceberg%20folder/a/b/metadata").glob("*.json"))
    assert StaticTable.from_metadata(str(metadata.absolute())).scan().to_arrow().num_rows == 20


def test_tables_that_iceberg_has_and_that_are_refused(rows: Any, lake: Lake, batch: Batch) -> None:
    for name in ("orders", "", "lake.", "a/b.c", "lake.a b"):
        refuses(BadInput, ToIceberg, name)
    assert "Name the folder" in refuses(BadInput, ToIceberg(TABLE).write, rows, batch).remedy
    lake.iceberg.write(rows, batch)
    ToIceberg(TABLE).write(rows, replace(batch, number=1))
    catalogue = lake.catalogue()
    with catalogue.load_table(TABLE).update_spec() as spec:
        spec.add_field("n", "bucket[4]")
    assert "bucket[4]" in refuses(BadInput, ToIceberg(TABLE).write, rows, replace(batch, number=2)).cause
    replace(lake.iceberg, table="lake.odd", partition_by=["odd"]).write(rows, batch)
    with catalogue.load_table("lake.odd").transaction() as transaction:
        transaction.set_properties({"write.metadata.metrics.default": "counts"})
    assert "no bounds of odd" in refuses(BadInput, ToIceberg("lake.odd").write, rows, replace(batch, number=1)).cause
    catalogue.close()
    assert len(found(lake, lake.iceberg)) == 40


def test_the_page_deletes_what_is_in_no_table(
    rows: Any, lake: Lake, batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text("utf-8")
    section = page[page.index("## Delta and Iceberg") : page.index("## Archive")]
    programs = re.findall(r"test_lakes.py -->\n```py\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    assert len(programs) == 3
    monkeypatch.chdir(tmp_path)
    ToDelta("lake/customers").write(rows, batch)
    orders = ToIceberg("lake.orders", "warehouse")
    for number in range(2):
        orders.write(rows, replace(batch, number=number))
    orphan, fresh = (Path(f"warehouse/lake/orders/data/batch-000009-{name}.parquet") for name in ("old", "new"))
    for path in (orphan, fresh):
        path.touch()
    os.utime(orphan, (0, 0))
    namespace: dict[str, Any] = {}
    exec("\n".join(programs).replace("sqlite:///work.db", lake.url), namespace)
    assert (orphan.exists(), fresh.exists()) == (False, True)
    assert namespace["orders"].scan().to_arrow().num_rows == 40
    assert DeltaTable("lake/customers").to_pyarrow_table().num_rows == 20
    namespace["catalog"].close()


def test_statistics_spare_files(spark: Any, lake: Lake, batch: Batch) -> None:
    text = f.when(f.col("n") > 5, f.repeat(f.lit("x"), 100)).otherwise("short")
    lake.delta.write(numbers(spark, 20).withColumn("text", text), batch)
    adds = [
        json.loads(json.loads(line)["add"]["stats"])
        for line in Path(lake.delta.path, "_delta_log", f"{1:020}.json").read_text().splitlines()
        if "add" in json.loads(line)
    ]
    assert [(each["numRecords"], each["minValues"]["n"], each["maxValues"]["n"]) for each in adds] == [
        (10, 0, 9),
        (10, 10, 19),
    ]
    assert [each["maxValues"]["text"] for each in adds] == ["x" * 63 + "y"] * 2
