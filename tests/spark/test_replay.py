"""A replay of a topic through a stage adds each row once, and the stage itself goes on where it was."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

import tablequeue
from tablequeue import Database
from tablequeue.cli import main
from tablequeue.errors import BadInput, MessagesDropped, PipelineFailed
from tablequeue.ext import context_of
from tablequeue.spark.pipeline import (
    ForeachBatch,
    FromQueue,
    FromSpark,
    FromTopic,
    Pipeline,
    ToDelta,
    ToParquet,
    ToTopic,
    replay,
    replaying,
    run,
)
from tablequeue.spark.pipeline.replaying import check, replay_name
from tablequeue.verbs import topics
from tests.support import refuses

STAGES = """
from tablequeue.spark.pipeline import *
shop = Pipeline("shop", url="sqlite:///work.db")
shop.stage(FromQueue("orders"), ToParquet("lake"), name="price")(lambda rows: rows)
"""


def test_it_breaks_off_and_goes_on_beside_its_stage(spark: Any, tmp_path: Path) -> None:
    with tablequeue.connect(f"sqlite:///{tmp_path / 'queues.db'}") as db:
        events, out = db.create_topic("events", payload="text"), db.create_topic("out", payload="text")
        lag = events.subscribe("lake").lag
        copied = out.subscribe("all")
        events.push_many(map(str, range(14)))
        broken: list[int] = []

        def break_off(rows: Any, number: int) -> None:
            if number == 1 and len(broken) == 1:
                raise RuntimeError("broken off")

        shop = Pipeline("shop", url=db.engine.url.render_as_string())
        lake, delta = f"{tmp_path}/lake", f"{tmp_path}/delta"
        source = FromTopic("events", subscription="lake", max_messages_per_trigger=4)
        sinks = (ToTopic("out"), ToParquet(lake), ToDelta(delta), ForeachBatch(break_off))
        shop.stage(source, *sinks, name="keep")(lambda messages: messages.select("offset", "payload"))
        checkpoints = f"{tmp_path}/checkpoints"
        run(shop, spark, checkpoints, available_now=True)
        events.push_many(map(str, range(14, 17)))
        first = topics.bounds(context_of(events)).first

        def replayed() -> Any:
            return replay(shop, spark, checkpoints, "keep", first + 2, first + 12)

        broken.append(1)
        with pytest.raises(PipelineFailed, match="broken off"):
            replayed()
        broken.append(2)
        assert (lag().messages, replayed().messages) == (3, 6), "the second batch again, and the third"
        assert replayed().messages == 0
        (live,) = run(shop, spark, checkpoints, available_now=True)
        assert (live.messages, lag().messages) == (3, 0)

        expected = Counter(map(str, [*range(17), *range(2, 12)]))
        popped = copied.pop_many(100)
        assert Counter(message.payload for message in popped) == expected
        assert Counter(row.payload for row in spark.read.parquet(lake).collect()) == expected
        assert Counter(DeltaTable(delta).to_pyarrow_table()["payload"].to_pylist()) == expected
        producers = {
            row.producer
            for row in spark.read.format("tablequeue").options(**shop.database, topic="out").load().collect()
        }
        assert producers == {"shop/keep", f"shop/keep.from-{first + 2}.to-{first + 12}"}


@pytest.mark.nightly
@pytest.mark.parametrize("mutant", ["the checkpoint of the stage", "the subscription of the stage", "the whole topic"])
def test_a_replay_without_a_promise_is_found(
    spark: Any, tmp_path: Path, mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mutant == "the checkpoint of the stage":
        monkeypatch.setattr(replaying, "replay_name", lambda stage, start, end="end": stage)
    else:
        kept = "subscription" if mutant == "the subscription of the stage" else "ending_position"

        def keeps(one: Any, **changes: Any) -> Any:
            return replace(one, **{name: value for name, value in changes.items() if name != kept})

        monkeypatch.setattr(replaying, "replace", keeps)
    with pytest.raises((AssertionError, PipelineFailed, pytest.fail.Exception)):
        test_it_breaks_off_and_goes_on_beside_its_stage(spark, tmp_path)


def test_a_replay_that_does_not_look_for_dropped_messages_is_found(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(test_from_what_the_topic_has.__globals__, "check", lambda *given: None)
    with pytest.raises(BaseException, match="DID NOT RAISE"):
        test_from_what_the_topic_has(db)


def test_from_what_the_topic_has(db: Database) -> None:
    topic = db.create_topic("events", payload="text", keep=60)
    begun = datetime.now(UTC)
    topic.push_many([*"abc"])
    long_ago = begun - timedelta(days=300)
    first, end = topics.bounds(context_of(topic))
    check(topic, long_ago, "end")  # nothing was dropped
    check(topic, first, end)
    assert "begins at 3, after its end, 2" in refuses(BadInput, check, topic, 3, 2).cause
    assert "does not exist yet" in refuses(BadInput, check, topic, "beginning", end + 1).cause
    for _ in range(3):
        topics.trim(context_of(topic), begun + timedelta(days=1))
    refused = refuses(MessagesDropped, check, topic, first, "end")
    assert f"begins at the offset {end}: the retention has dropped what came before" in refused.cause
    assert refused.remedy.endswith(f"from the offset {end}.")
    topic.push("d")
    for start in (end - 1, long_ago, begun):
        assert f"begins at the offset {end}, pushed at 20" in refuses(MessagesDropped, check, topic, start, "end").cause
    check(topic, end, "end")
    check(topic, "beginning", "end")


def test_stages_that_have_no_topic_are_refused(tmp_path: Path) -> None:
    shop = Pipeline("shop", url=f"sqlite:///{tmp_path / 'queues.db'}")
    shop.stage(FromQueue("orders"), ToParquet("lake"), name="price")(lambda rows: rows)
    shop.stage(FromSpark(lambda spark: spark), ToParquet("lake"), name="files")(lambda rows: rows)
    none: Any = None

    def refused(stage: str) -> Any:
        return refuses(BadInput, replay, shop, none, "checkpoints", stage, "beginning")

    assert "tablequeue dead redrive orders" in refused("price").remedy
    assert "reads no topic" in refused("files").cause
    assert refused("nix").remedy == "Name one of: price, files."
    aware = datetime(2026, 11, 1, 12, tzinfo=UTC)
    assert replay_name("price", aware) == "price.from-20261101T120000Z.to-end"
    assert "has no zone" in refuses(BadInput, replay_name, "price", datetime(2026, 11, 1)).cause


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("shop/price", "tablequeue dead redrive orders"),
        ("shop/nix", "Name one of: price."),
        ("other/price", "defines the pipeline 'shop'."),
        ("price", "defines the pipeline 'shop'."),
    ],
)
def test_the_command_refuses_before_it_starts_spark(tmp_path: Path, stage: str, words: str) -> None:
    file = tmp_path / "replayed_stages.py"
    file.write_text(STAGES)
    command = ["pipeline", "replay", stage, "--from", "2026-11-01", "--file", str(file)]
    result = CliRunner().invoke(main, command)
    assert (result.exit_code, words in result.stderr) == (1, True), result.output
    for position in ("2026-11-01T10:00", "-1", "yesterday"):
        assert CliRunner().invoke(main, [*command, "--to", position]).exit_code == 2


def test_the_page(spark: Any, environment: Database, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "replay.md").read_text("utf-8")
    clicks = environment.create_topic("clicks")
    clicks.push_many({"page": page} for page in ("/", "/cart", "/"))
    names: dict[str, Any] = {"spark": spark}
    blocks = re.findall(r"^```py\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    for block in blocks:
        exec(re.sub(r'"(lake|checkpoints)/', rf'"{tmp_path}/\1/', block), names)
    assert sorted(row.page for row in spark.read.parquet(f"{tmp_path}/lake/pages").collect()) == ["/", "/", "/cart"]
