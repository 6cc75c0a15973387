"""Pipelines: what goes in comes out of every sink once, whatever breaks off in between; see docs/pipelines.md."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import tablequeue
from tablequeue import Database, Queue
from tablequeue.bulk.stream import streams
from tablequeue.errors import PipelineFailed
from tablequeue.spark.pipeline import (
    ForeachBatch,
    FromQueue,
    FromSpark,
    Pipeline,
    Progress,
    ToDelta,
    ToIceberg,
    ToParquet,
    ToQueue,
    attempt,
    run,
)
from tablequeue.spark.pipeline.file import load
from tablequeue.spark.pipeline.sinks import Batch
from tests.servers import Place, only
from tests.spark import named
from tests.support import counts, refuses

Function = Callable[[DataFrame, int], None]


def number(payload: str) -> int:
    return int(json.loads(payload)["n"])


def numbers(messages: DataFrame) -> DataFrame:
    """The number of each message; what has none fails."""
    tried = messages.withColumn("tried", attempt(number, "int")("payload"))
    return tried.select("id", f.col("tried.value").alias("n"), "tried.error").withColumn("odd", f.col("n") % 2)


def as_messages(rows: DataFrame) -> DataFrame:
    return rows.select(f.to_json(f.struct("n")).alias("payload"))


class Sinks:
    """One of each kind, and what is in them."""

    def __init__(self, folder: Path, queue: Queue) -> None:
        self.lake, self.delta, self.queue = str(folder / "lake"), str(folder / "delta"), queue
        self._seen = folder / "seen"

    def all(self, last: Function = lambda rows, number: None) -> tuple[Any, ...]:
        file = self._seen  # over Spark Connect, another process calls the function

        def see(rows: DataFrame, number: int) -> None:
            with file.open("a") as lines:
                lines.writelines(f"{number}\n" for _ in rows.select("n").collect())
            last(rows, number)

        return (
            ToQueue(self.queue.name, as_messages),
            ToParquet(self.lake, partition_by=["odd"]),
            ToDelta(self.delta, partition_by=["odd"]),
            ToIceberg("iceberg.numbers", str(Path(self.delta).parent), partition_by=["odd"]),
            ForeachBatch(see),
        )

    def seen(self) -> Counter[int]:
        """How many rows a function of one's own got of each batch."""
        return Counter(map(int, self._seen.read_text().split()))

    def contents(self, spark: Any) -> dict[str, Counter[int]]:
        return {
            "queue": Counter(message.payload["n"] for message in self.queue.peek(10_000)),
            "parquet": Counter(row.n for row in spark.read.parquet(self.lake).select("n").collect()),
            "delta": Counter(DeltaTable(self.delta).to_pyarrow_table()["n"].to_pylist()),
            "iceberg": Counter(self._of_iceberg()),
        }

    def _of_iceberg(self) -> list[int]:
        """The numbers by the newest metadata: the catalogue is in a database of any kind."""
        newest = max(Path(self.delta).with_name("iceberg").glob("numbers/metadata/*.json"))
        return StaticTable.from_metadata(str(newest)).scan().to_arrow()["n"].to_pylist()

    def check_once(self, spark: Any, expected: range) -> None:
        for sink, found in self.contents(spark).items():
            assert found == Counter(expected), sink


@pytest.fixture
def small(tmp_path: Path) -> Any:
    """A database for what does not depend on the engine."""
    with tablequeue.connect(f"sqlite:///{tmp_path / 'queues.db'}") as database:
        yield database


def pipeline_of(db: Database, schema: str | None = None, name: str = "test") -> Pipeline:
    return Pipeline(name, url=db.engine.url.render_as_string(), schema=schema)


def push(queue: Queue, ns: range) -> None:
    queue.push_many({"n": n} for n in ns)


@only("postgresql", "mariadb", "mssql")  # on SQLite are most other tests of this file
def test_stages_over_queues_and_a_lake(spark: Any, db: Database, place: Place, tmp_path: Path) -> None:
    raw, parsed = db.create_queue("raw"), db.create_queue("parsed")
    sinks = Sinks(tmp_path, db.create_queue("last"))
    pipeline = named.pipeline(place)
    pipeline.stage(FromQueue("raw"), ToQueue("parsed", as_messages), name="parse")(numbers)
    pipeline.stage(FromQueue("parsed", max_messages_per_trigger=15), *sinks.all(), name="keep")(numbers)
    push(raw, range(20))
    bad = raw.push({"m": 1})

    first, second = run(pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)

    sinks.check_once(spark, range(20))
    assert (first.messages, first.failed, first.error, first.lag) == (21, 1, "KeyError: 'n'", 0)
    assert (second.messages, second.batch, second.failed, second.error) == (20, 1, 0, None)
    assert (first.written, second.written, bool(first.seconds)) == (20, 20, True)
    assert counts(raw) == {"dead": 1, "finished": 20}
    assert counts(parsed) == {"finished": 20}
    dead = raw.dead()
    assert [message.id for message in dead] == [bad]
    assert "in number" in dead[0].errors[-1].error, "the traceback of the function"
    assert {message.consumer for message in parsed.history()} == {"test/keep"}
    assert {message.producer for message in parsed.history()} == {"test/parse"}

    push(raw, range(20, 30))
    run(pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)
    sinks.check_once(spark, range(30))


def fail_once(folder: Path) -> Function:
    """A sink that breaks the first batch off, when all other sinks have it and Spark's log has not."""
    failed = folder / "failed"

    def break_off(rows: DataFrame, number: int) -> None:
        if not failed.exists():
            failed.touch()
            raise RuntimeError("broken off")

    return break_off


def interrupted(spark: Any, db: Database, sinks: Sinks, folder: Path) -> Pipeline:
    """A pipeline that broke off between the sinks of its first batch and Spark's log."""
    push(db.create_queue("raw"), range(8))
    pipeline = pipeline_of(db)
    pipeline.stage(FromQueue("raw", 5), *sinks.all(fail_once(folder)), name="keep")(numbers)
    error = refuses(PipelineFailed, run, pipeline, spark, f"{folder}/checkpoints", available_now=True)
    assert error.cause.startswith("The stage 'keep' failed: RuntimeError: broken off (test_pipeline.py, line ")
    sinks.check_once(spark, range(5))
    return pipeline


def test_a_batch_that_broke_off_is_in_every_sink_once(spark: Any, small: Database, tmp_path: Path) -> None:
    sinks = Sinks(tmp_path, small.create_queue("last"))
    pipeline = interrupted(spark, small, sinks, tmp_path)
    run(pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)
    sinks.check_once(spark, range(8))
    assert sinks.seen() == {0: 10, 1: 3}, "a function of one's own gets it again"
    assert counts(small.queue("raw")) == {"finished": 8}


def test_sinks_that_do_not_know_a_batch_again_are_found(
    spark: Any, small: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sinks = Sinks(tmp_path, small.create_queue("last"))
    pipeline = interrupted(spark, small, sinks, tmp_path)
    monkeypatch.setattr(
        "tablequeue.spark.pipeline.writer.Batch", lambda *values: replace(Batch(*values), query="another")
    )
    run(pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)
    for sink, found in sinks.contents(spark).items():
        assert found == Counter([*range(5), *range(8)]), sink


def test_a_lost_checkpoint_loses_nothing_and_doubles_one_batch(spark: Any, small: Database, tmp_path: Path) -> None:
    sinks = Sinks(tmp_path, small.create_queue("last"))
    pipeline = interrupted(spark, small, sinks, tmp_path)
    shutil.rmtree(tmp_path / "checkpoints")
    run(pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)
    for sink, found in sinks.contents(spark).items():
        assert found == Counter([*range(5), *range(8)]), sink
    assert counts(small.queue("raw")) == {"finished": 8}


@pytest.mark.parametrize("arrow", ["true", "false"])
def test_a_value_that_does_not_fit_fails_its_own_message(
    spark: Any, small: Database, tmp_path: Path, arrow: str
) -> None:
    raw = small.create_queue("raw")
    values = [1.5, 2, "12", "twelve", 1 << 80, {"a": 1}, "exit"]
    raw.push_many(values)

    def total(payload: str) -> Any:
        found = json.loads(payload)
        return sys.exit(3) if found == "exit" else found

    pipeline = pipeline_of(small)

    @pipeline.stage(FromQueue("raw"), ToParquet(f"{tmp_path}/lake"))
    def keep(messages: DataFrame) -> DataFrame:
        tried = attempt(total, "double")("payload")
        return messages.withColumn("tried", tried).selectExpr("id", "tried.value", "tried.error")

    spark.conf.set("spark.sql.execution.pythonUDF.arrow.enabled", arrow)
    try:
        run(pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)
    finally:
        spark.conf.unset("spark.sql.execution.pythonUDF.arrow.enabled")
    rows = spark.read.parquet(f"{tmp_path}/lake").orderBy("id").collect()
    assert [row.value for row in rows] == [1.5, 2.0, 12.0, float(1 << 80)]
    text, other, left = raw.dead()
    assert text.errors[-1].error == (
        f"TypeError: total returned 'twelve', for message {text.id}, which does not fit the type double."
    )
    assert f"{{'a': 1}}, for message {other.id}, which" in other.errors[-1].error
    assert "SystemExit: 3" in left.errors[-1].error


def test_a_message_that_ends_its_worker_becomes_a_dead_letter(spark: Any, small: Database, tmp_path: Path) -> None:
    """In the function of the stage, and in that of a sink after another one that has the batch."""
    raw, last = small.create_queue("raw", max_attempts=2), small.create_queue("last")
    push(raw, range(4))

    def ending(number: int) -> Any:
        def end(n: int) -> int:
            return os._exit(9) if n == number else n

        return lambda rows: rows.withColumn("n", f.udf(end, "int")("n"))

    pipeline = pipeline_of(small)
    sinks = ToQueue("last", as_messages), ToParquet(f"{tmp_path}/lake", transform=ending(3))
    pipeline.stage(FromQueue("raw"), *sinks, name="keep")(lambda messages: ending(1)(numbers(messages)))
    (done,) = run(pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)
    assert counts(raw) == {"dead": 2, "finished": 2}
    assert [dead.payload["n"] for dead in raw.dead()] == [1, 3]
    assert "was begun 2 times without an end" in raw.dead()[0].errors[-1].error
    assert done.failed == 2
    assert sorted(row.n for row in spark.read.parquet(f"{tmp_path}/lake").collect()) == [0, 2]
    assert sorted(message.payload["n"] for message in last.peek(10)) == [0, 2, 3], "once, though it came again"


def test_a_message_that_fails_in_one_row_is_in_no_sink(spark: Any, small: Database, tmp_path: Path) -> None:
    raw = small.create_queue("raw")
    raw.push_many([[1, 2], [3, None], [4]])
    pipeline = pipeline_of(small)

    @pipeline.stage(FromQueue("raw"), ToParquet(f"{tmp_path}/lake"))
    def each(messages: DataFrame) -> DataFrame:
        rows = messages.select("id", f.explode(f.from_json("payload", "array<int>")).alias("n"))
        return rows.withColumn("error", f.when(f.col("n").isNull(), "not a number"))

    run(pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)
    assert sorted(row.n for row in spark.read.parquet(f"{tmp_path}/lake").collect()) == [1, 2, 4]
    assert [(dead.payload, dead.errors[-1].error) for dead in raw.dead()] == [([3, None], "not a number")]


def test_a_stop_ends_after_a_batch_and_the_next_run_goes_on(spark: Any, small: Database, tmp_path: Path) -> None:
    raw, last = small.create_queue("raw"), small.create_queue("last")
    push(raw, range(60))
    sinks = ToQueue("last", as_messages), ToParquet(f"{tmp_path}/lake")
    stop = Event()

    def stop_after_the_third(progress: Sequence[Progress]) -> None:
        if (progress[0].batch or 0) >= 2:
            stop.set()

    pipeline = pipeline_of(small)
    pipeline.stage(FromQueue("raw", 4), *sinks, name="keep")(numbers)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "one").write_text("a\nb\n")
    files = FromSpark(lambda spark: spark.readStream.text(f"{tmp_path}/files"))
    pipeline.stage(files, ToParquet(f"{tmp_path}/lines"), name="beside")(lambda rows: rows)

    keep, beside = run(pipeline, spark, f"{tmp_path}/checkpoints", trigger=0.01, stop=stop, watch=stop_after_the_third)
    done = keep.messages
    assert 12 <= done < 60
    assert counts(raw) == {"ready": 60 - done, "finished": done}, "nothing is claimed in vain"
    assert (beside.messages, beside.lag) == (2, None)
    assert spark.read.parquet(f"{tmp_path}/lines").count() == 2

    watched: list[Any] = []
    pipeline = pipeline_of(small)
    pipeline.stage(FromQueue("raw"), *sinks, name="keep")(numbers)
    run(pipeline, spark, f"{tmp_path}/checkpoints", available_now=True, watch=watched.append)
    assert Counter(message.payload["n"] for message in last.peek(100)) == Counter(range(60))
    assert Counter(row.n for row in spark.read.parquet(f"{tmp_path}/lake").collect()) == Counter(range(60))
    assert watched[-1][0].messages == 60 - done


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda rows: rows.select("nix"), "column, variable, or function parameter with name `nix` cannot be resolved"),
        (lambda rows: rows.select(rows.nix), "nix"),
        (lambda rows: None, "Its function returned a NoneType."),
        (lambda rows: rows.select("id"), "There is no column payload to write. Add one, for JSON by"),
        (lambda rows: rows.withColumn("payload", f.udf(lambda v: 1 / 0)("payload")), "ZeroDivisionError: division by"),
        (lambda rows: rows.select(f.col("payload").cast("int").cast("string").alias("payload")), "cannot be cast to"),
        (lambda rows: rows.select(f.lit("why").alias("error")), "but no column id"),
    ],
    ids=["column", "attribute", "none", "payload", "udf", "cast", "error"],
)
def test_what_a_stage_raises_is_said_in_a_sentence(
    spark: Any, small: Database, tmp_path: Path, function: Any, words: str
) -> None:
    raw, last = small.create_queue("raw"), small.create_queue("last")
    raw.push({"n": 1})
    pipeline = pipeline_of(small)
    pipeline.stage(FromQueue("raw"), ToQueue("last"), name="broken")(function)
    error = refuses(PipelineFailed, run, pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)
    assert error.cause.startswith("The stage 'broken' failed: ")
    assert words in error.cause
    assert "\n" not in error.cause
    assert len(error.cause) < 500
    assert (counts(last), raw.stats().finished) == ({}, 0), "nothing was done"


def test_a_failing_stage_stops_the_others(spark: Any, small: Database, tmp_path: Path) -> None:
    raw, other = small.create_queue("raw"), small.create_queue("other")
    push(raw, range(3))
    push(other, range(40))

    def break_off(rows: DataFrame, number: int) -> None:
        raise RuntimeError("no room")

    pipeline = pipeline_of(small)
    pipeline.stage(FromQueue("other", 2), ForeachBatch(lambda rows, number: None), name="good")(numbers)
    pipeline.stage(FromQueue("raw"), ForeachBatch(break_off), name="bad")(numbers)
    error = refuses(PipelineFailed, run, pipeline, spark, f"{tmp_path}/checkpoints", trigger=0.01)
    assert "'bad' failed: RuntimeError: no room" in error.cause
    assert not spark.streams.active
    assert [state.epoch for state in streams(other)] == [1], "another run that took over is left alone"


def test_a_query_that_was_stopped_elsewhere(spark: Any, small: Database, tmp_path: Path) -> None:
    small.create_queue("raw")
    pipeline = pipeline_of(small)
    pipeline.stage(FromQueue("raw"), ForeachBatch(lambda rows, number: None), name="keep")(lambda rows: rows)

    def end(progress: Sequence[Progress]) -> None:
        for query in spark.streams.active:
            query.stop()

    error = refuses(PipelineFailed, run, pipeline, spark, f"{tmp_path}/checkpoints", watch=end)
    assert error.cause == "The stage 'keep' failed: Spark stopped its query, perhaps for another run of it."


def test_the_pipeline_of_the_page(spark: Any, small: Database, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text("utf-8")
    program = re.findall(r"^```py\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[0]
    url = small.engine.url.render_as_string()
    file = tmp_path / "shop_of_the_page.py"
    file.write_text(program.replace('("shop")', f'("shop", url="{url}")').replace('"lake/', f'"{tmp_path}/lake/'))
    orders = small.create_queue("orders")
    small.create_queue("priced")
    orders.push({"customer": "ada", "lines": [{"price": 2.5, "count": 2}, {"price": 1, "count": 1}]})
    orders.push({"customer": "bob", "lines": [{"price": 1}]})

    run(load(str(file)), spark, f"{tmp_path}/checkpoints", available_now=True)

    assert DeltaTable(f"{tmp_path}/lake/customers").to_pyarrow_table().to_pylist() == [{"customer": "ada", "total": 6}]
    assert [row.total for row in spark.read.parquet(f"{tmp_path}/lake/orders").collect()] == [6]
    assert ["KeyError: 'count'" in dead.errors[-1].error for dead in orders.dead()] == [True]
