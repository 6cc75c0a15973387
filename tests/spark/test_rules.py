"""Rules about the rows of a stage, and messages that a stage of a topic rejects."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from threading import Event
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.functions import coalesce

import tablequeue
from tablequeue import Database
from tablequeue.errors import BadInput, PipelineFailed
from tablequeue.observe.metrics import text
from tablequeue.spark.pipeline import (
    ForeachBatch,
    FromQueue,
    FromSpark,
    FromTopic,
    Pipeline,
    ToParquet,
    ToQueue,
    ToTopic,
    rejects,
    rules,
    run,
)
from tablequeue.spark.pipeline.health import Watched
from tests.support import counts, refuses

SCHEMA = "customer string not null, total double"
RULES = {"total is positive": "total > 0", "customer is known": "customer <> 'nobody'"}
ORDERS = [
    {"customer": "ada", "total": 5},
    {"customer": "nobody", "total": -1},
    {"customer": "bob"},
    {"total": 1},
    {"customer": "cyd", "total": "7.5"},
]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Database]:
    with tablequeue.connect(f"sqlite:///{tmp_path / 'queues.db'}") as database:
        yield database


def shop(database: Database) -> Pipeline:
    return Pipeline("shop", url=database.engine.url.render_as_string())


def totals(orders: DataFrame) -> DataFrame:
    return orders.select("id", "customer", "total", f.to_json(f.struct("total")).alias("payload"))


@pytest.mark.parametrize(
    ("on_violation", "states", "written"),
    [
        ("dead", {"finished": 2, "dead": 3}, [5.0, 7.5]),
        ("drop", {"finished": 4, "dead": 1}, [5.0, 7.5]),
        ("warn", {"finished": 4, "dead": 1}, [5.0, -1.0, None, 7.5]),
    ],
)
def test_a_row_that_breaks_a_rule(
    spark: Any, small: Database, tmp_path: Path, on_violation: Any, states: Any, written: Any
) -> None:
    orders, out = small.create_queue("orders"), small.create_queue("out")
    orders.push_many(ORDERS)
    pipeline = shop(small)
    source = FromQueue("orders", schema=SCHEMA)
    pipeline.stage(source, ToQueue("out"), name="price", expect=RULES, on_violation=on_violation)(totals)
    watched = Watched(pipeline, Event())
    (done,) = run(pipeline, spark, f"{tmp_path}/checkpoints", available_now=True, watch=watched.watch)
    assert counts(orders) == states
    assert [message.payload.get("total") for message in out.peek(10)] == written
    assert done.violations == {"total is positive": 2, "customer is known": 1}, "null is no truth"
    assert done.failed == states["dead"], "one does not fit its schema"
    if on_violation == "dead":
        errors = [letter.errors[-1].error for letter in orders.dead()]
        assert errors[:2] == ["Broken rule: total is positive; customer is known", "Broken rule: total is positive"]
    metrics = text(watched.health.metrics())
    assert 'violations_total{pipeline="shop",stage="price",rule="total is positive"} 2' in metrics


def test_a_stage_that_stops_writes_nothing(spark: Any, small: Database, tmp_path: Path) -> None:
    orders, out = small.create_queue("orders"), small.create_queue("out")
    orders.push_many(ORDERS)
    pipeline = shop(small)
    source = FromQueue("orders", schema=SCHEMA)
    pipeline.stage(source, ToQueue("out"), name="price", expect=RULES, on_violation="stop")(totals)
    error = refuses(PipelineFailed, run, pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)
    assert "A row of message 2 breaks the rule total is positive; customer is known" in error.cause
    assert counts(out) == {}
    assert counts(orders) == {"in_progress": 5}


def rejecting(database: Database, folder: Path, *more: Any) -> Pipeline:
    pipeline = shop(database)
    source = FromTopic("orders", "spark", max_messages_per_trigger=4, schema=SCHEMA)
    sinks = ToParquet(f"{folder}/lake"), ToTopic("out", lambda rows: rows.select("payload")), *more
    declared = pipeline.stage(source, *sinks, name="price", expect=RULES, rejects=ToTopic("rejected"))
    declared(lambda orders: orders.select("id", "customer", "total", "payload").where("id > 0"))
    return pipeline


def rejected(database: Database) -> list[tuple[Any, dict[str, Any]]]:
    found = database.topic("rejected").subscription("all").pop_many(100)
    return [(message.payload, dict(message.headers)) for message in found]


def test_a_stage_of_a_topic_rejects_a_message_once_whatever_breaks_off(
    spark: Any, small: Database, tmp_path: Path
) -> None:
    orders, out = small.create_topic("orders", payload="text"), small.create_topic("out", payload="text")
    orders.subscribe("spark")
    small.create_topic("rejected", payload="text").subscribe("all")
    out.subscribe("all")
    orders.push_many([*map(json.dumps, ORDERS), "x"])
    failed = tmp_path / "failed"

    def break_off(rows: DataFrame, number: int) -> None:
        if number == 0 and not failed.exists():
            failed.touch()
            raise RuntimeError("broken off")

    # The sinks have the first batch, and its rejects are not pushed. Then they are, and Spark's log is lost.
    pipeline = rejecting(small, tmp_path, ForeachBatch(break_off))
    refuses(PipelineFailed, run, pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)
    (done,) = run(pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)
    assert (done.messages, done.failed, done.lag) == (6, 2, 0)
    assert done.violations == {"total is positive": 2, "customer is known": 1}
    for last in (tmp_path / "checkpoints" / "price" / "commits").glob("*1*"):
        last.unlink()
    run(pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)

    found = rejected(small)
    assert len(found) == 4
    assert all(headers["stage"] == "shop/price" for _, headers in found)
    assert Counter(headers.get("rule") for _, headers in found) == Counter(
        [None, None, "total is positive; customer is known", "total is positive"]
    )
    by_id = {headers["id"]: (payload, headers.get("reason", "")) for payload, headers in found}
    assert [by_id[id][0] for id in sorted(by_id)] == [*map(json.dumps, ORDERS[1:4]), "x"]
    assert by_id[4][1].endswith("customer is null or missing, and may not be.")
    assert "it is no JSON" in by_id[6][1]
    lake = spark.read.parquet(f"{tmp_path}/lake")
    assert sorted(row.total for row in lake.collect()) == [5, 7.5]
    assert not {rejects.REJECTED, rules.BROKEN, "error"} & {*lake.columns}
    assert len(out.subscription("all").pop_many(100)) == 2


def test_without_rejects_a_message_that_does_not_fit_stops_a_stage_of_a_topic(
    spark: Any, small: Database, tmp_path: Path
) -> None:
    small.create_topic("orders").push_many(ORDERS)
    pipeline = shop(small)
    source = FromTopic("orders", schema=SCHEMA)
    pipeline.stage(source, ToParquet(f"{tmp_path}/lake"), name="keep")(lambda orders: orders.select("total"))
    error = refuses(PipelineFailed, run, pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)
    assert "Message 4 does not fit the schema of the payload: customer is null or missing" in error.cause


def test_a_row_without_a_payload_is_rejected_as_json(spark: Any, small: Database, tmp_path: Path) -> None:
    small.create_topic("rejected", payload="text").subscribe("all")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "one").write_text("a\n")
    pipeline, source = shop(small), FromSpark(lambda spark: spark.readStream.text(f"{tmp_path}/texts"))
    declared = pipeline.stage(
        source,
        ToParquet(f"{tmp_path}/lake"),
        name="keep",
        expect={"it is": "payload <> ''"},
        rejects=ToTopic("rejected"),
    )
    declared(lambda texts: texts.select("value", f.lit(None).cast("string").alias("payload")))
    run(pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)
    ((payload, headers),) = rejected(small)
    assert (payload, headers["rule"]) == ('{"value":"a"}', "it is")


def test_what_a_stage_cannot_do_is_refused(spark: Any, small: Database, tmp_path: Path) -> None:
    small.create_topic("orders", payload="text")
    small.create_topic("rejected")
    small.create_queue("raw")
    pipeline = shop(small)
    topic, queue, sink = FromTopic("orders", schema=SCHEMA), FromQueue("raw"), ToParquet("lake")

    def declare(*ends: Any, **options: Any) -> str:
        def refused() -> None:
            pipeline.stage(*ends, name="price", **options)(totals)

        return refuses(BadInput, refused).cause

    assert "has rejects and reads a queue" in declare(queue, sink, rejects=ToTopic("rejected"))
    assert "there are no dead letters" in declare(topic, sink, expect=RULES)
    assert "two sinks to the topic rejected" in declare(topic, ToTopic("rejected"), rejects=ToTopic("rejected"))
    assert "on_violation is 'fix'" in declare(queue, sink, expect=RULES, on_violation="fix")
    assert "A rule has no name" in declare(queue, sink, expect={"": "total > 0"})
    pipeline.stage(topic, sink, rejects=ToTopic("rejected"), name="price")(totals)
    error = refuses(BadInput, run, pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)
    assert "takes json, and the payloads of 'orders' are text" in error.cause


def test_the_stage_of_the_page(spark: Any, small: Database, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text("utf-8")
    (program,) = re.findall(r"tests/spark/test_rules.py -->\n```py\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    pipeline = shop(small)
    exec(program.replace('"lake/', f'"{tmp_path}/lake/'), {"shop": pipeline, "ToParquet": ToParquet})
    small.create_topic("events").push_many(ORDERS)
    small.create_topic("rejected").subscribe("all")
    (done,) = run(pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)
    assert (done.failed, len(rejected(small))) == (1, 3)


@pytest.mark.nightly
@pytest.mark.parametrize("mutant", ["null holds", "rejects of no batch", "what does not fit is left out"])
def test_a_stage_without_a_promise_is_found(
    spark: Any, small: Database, tmp_path: Path, mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mutant == "null holds":
        monkeypatch.setattr("pyspark.sql.functions.coalesce", lambda *columns: coalesce(columns[0], f.lit(True)))
        with pytest.raises(AssertionError):
            test_a_row_that_breaks_a_rule(spark, small, tmp_path, "drop", {"finished": 4, "dead": 1}, [5.0, 7.5])
    elif mutant == "what does not fit is left out":
        monkeypatch.setattr(rejects, "united", lambda rows, unfitting, stage: rows)
        with pytest.raises(AssertionError):
            test_a_stage_of_a_topic_rejects_a_message_once_whatever_breaks_off(spark, small, tmp_path)
    else:
        write = rejects.write
        monkeypatch.setattr(
            rejects, "write", lambda rows, topic, batch: write(rows, topic, replace(batch, query=token_hex(4)))
        )
        with pytest.raises(AssertionError):
            test_a_stage_of_a_topic_rejects_a_message_once_whatever_breaks_off(spark, small, tmp_path)
