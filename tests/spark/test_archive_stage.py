"""Archives as stages of a pipeline: what the stages have finished moves to the lake. How they move it, and what kills
leave, is in tests/streams/test_archive_tables.py."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

import tablequeue
from tablequeue import Database, Queue
from tablequeue.bulk import archive as archives
from tablequeue.errors import ArchiveRefused, BadInput, PipelineFailed, QueueNotFound
from tablequeue.spark.pipeline import (
    Archive,
    FromQueue,
    Pipeline,
    Progress,
    ToDelta,
    ToIceberg,
    ToParquet,
    ToQueue,
    archiving,
    run,
)
from tests.support import claimed, counts, refuses


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Database]:
    with tablequeue.connect(f"sqlite:///{tmp_path / 'queues.db'}") as database:
        database.create_queue("raw").push_many({"n": n} for n in range(30))
        yield database


@pytest.fixture
def pipeline(small: Database) -> Pipeline:
    return Pipeline("test", url=small.engine.url.render_as_string())


def finish(queue: Queue, times: int) -> None:
    for _ in range(times):
        claimed(queue).complete()


def test_what_a_stage_has_finished_is_archived(spark: Any, small: Database, pipeline: Pipeline, tmp_path: Path) -> None:
    small.create_queue("other")
    pipeline.stage(FromQueue("raw", 20), ToQueue("other", lambda rows: rows.select("payload")), name="copy")(
        lambda rows: rows
    )
    pipeline.add(Archive("raw", ToDelta(f"{tmp_path}/lake/raw"), older_than=0))
    before = {message.id: message.payload for message in small.queue("raw").peek(100)}
    copy, archive = run(pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)
    assert (copy.messages, archive.messages, archive.batch, archive.stage) == (30, 30, 0, "archive")
    assert counts(small.queue("raw")) == {}
    with duckdb.connect() as duck:
        duck.register("archived", DeltaTable(f"{tmp_path}/lake/raw").to_pyarrow_table())
        rows = duck.execute("select id, payload, state from archived").fetchall()
    assert sorted((id, json.loads(payload), state) for id, payload, state in rows) == [
        (id, payload, "finished") for id, payload in sorted(before.items())
    ]
    assert run(pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)[1].messages == 0


def read(folder: Path, url: str, kind: str) -> pa.Table:
    if kind == "iceberg":
        catalogue = SqlCatalog("tablequeue", uri=url)
        try:
            return catalogue.load_table("lake.raw").scan().to_arrow()
        finally:
            catalogue.close()
    return DeltaTable(folder).to_pyarrow_table() if kind == "delta" else pq.read_table(folder)


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_stop_leaves_each_message_once(
    spark: Any, small: Database, pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It archives again and again, and is stopped in the middle of a run."""
    monkeypatch.setattr(archiving, "EVERY", 0.01)
    monkeypatch.setattr(archives, "FILE_ROWS", 4)
    monkeypatch.setattr(archives, "FIRST_ROWS", 4)
    folder, url, raw, stop = tmp_path / "lake" / "raw", str(small.engine.url), small.queue("raw"), Event()
    sinks: dict[str, Any] = {"parquet": ToParquet(str(folder)), "delta": ToDelta(str(folder))}
    pipeline.add(Archive("raw", sinks.get(kind) or ToIceberg("lake.raw", str(tmp_path)), older_than=0), name="keep")
    write = archives._write

    def then_stopped(*given: Any) -> int | None:
        written = write(*given)
        if written and written > 8:
            stop.set()
        return written

    monkeypatch.setattr(archives, "_write", then_stopped)
    finish(raw, 4)

    begun = Event()

    def more(progress: Sequence[Progress]) -> None:
        # Once: while a run is archiving these, progress still has the messages of the run before.
        if progress[0].messages == 4 and not begun.is_set():
            begun.set()
            finish(raw, 12)

    (keep,) = run(pipeline, spark, f"{tmp_path}/checkpoints", stop=stop, watch=more)
    there = read(folder, url, kind)["id"].to_pylist()
    assert sorted(there) == [*range(1, len(there) + 1)]
    assert len(there) + (raw.stats().finished or 0) == 16, "no message is both there and here"
    assert len(there) > 8
    assert (keep.error, keep.failed) == (None, 0)


def test_an_archive_that_fails_ends_the_pipeline(
    spark: Any, small: Database, pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(small.queue("raw"), 3)
    archive = Archive("raw", ToDelta(f"{tmp_path}/lake"), older_than=0)
    pipeline.stage(FromQueue("raw"), ToParquet(f"{tmp_path}/files"), name="copy")(lambda rows: rows)
    pipeline.add(archive, name="keep")

    def refuse(*given: Any) -> None:
        raise ArchiveRefused("It was changed.", "Restore it.")

    monkeypatch.setattr(archives, "_check", refuse)
    error = refuses(PipelineFailed, run, pipeline, spark, f"{tmp_path}/checkpoints")
    assert (error.cause, error.remedy) == ("The stage 'keep' failed: It was changed.", "Restore it.")
    assert spark.streams.active == []


def test_what_is_refused(spark: Any, small: Database, pipeline: Pipeline, tmp_path: Path) -> None:
    wrong: list[Any] = [ToQueue("raw"), "lake", ToDelta("lake", ["state"]), ToParquet("x", transform=lambda rows: rows)]
    for to in wrong:
        refuses(BadInput, Archive, "raw", to, older_than=0)
    pipeline.add(Archive("nix", ToDelta("lake"), older_than=0))
    assert "two stages 'archive'" in refuses(BadInput, pipeline.add, Archive("raw", ToDelta("x"), older_than=0)).cause
    refuses(QueueNotFound, run, pipeline, spark, f"{tmp_path}/checkpoints")


def test_the_page_archives(small: Database, pipeline: Pipeline) -> None:
    page = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text("utf-8")
    program = page.split("executed by tests/spark/test_archive_stage.py -->\n```py\n")[1].partition("```")[0]
    exec(program, {"shop": pipeline, "ToDelta": ToDelta, "ToIceberg": ToIceberg})
    assert pipeline.archives == {
        "archive": Archive("orders", ToDelta("lake/archive/orders"), timedelta(days=7)),
        "archive_priced": Archive("priced", ToIceberg("archive.priced", "lake"), timedelta(days=7)),
    }
