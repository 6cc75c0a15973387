"""The server of the queues and of Iceberg's catalogue is killed while a pipeline writes to lakes.

`python -m tests.spark.kills` kills it, and the pipeline, at random moments.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

import tablequeue
from tablequeue.bulk.catalogue import Catalogue
from tablequeue.errors import TablequeueError
from tablequeue.spark.pipeline import FromQueue, Pipeline, ToParquet, files, run
from tests.servers import Server, postgresql_bin, postgresql_server
from tests.spark.test_lakes import Lake
from tests.support import counts


@pytest.fixture
def server() -> Iterator[Server]:
    programs = postgresql_bin()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    with postgresql_server(programs) as found:
        yield found


def test_the_server_is_killed(spark: Any, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path, server.url)
    with tablequeue.connect(server.url) as database:
        raw = database.create_queue("raw")
        raw.push_many({"n": n} for n in range(30))
        pipeline = Pipeline("test", url=server.url)
        sinks = lake.delta, lake.iceberg, ToParquet(f"{tmp_path}/parquet")
        pipeline.stage(FromQueue("raw", 10), *sinks, name="keep")(
            lambda messages: messages.select("id", "payload", "pushed_at")
        )
        write, commit = files.write, Catalogue.commit_table

        def killed_before_the_commit(rows: Any, folder: str, *rest: Any) -> Any:
            written = write(rows, folder, *rest)
            if "numbers" in folder:
                server.kill()
            return written

        def killed_after_the_commit(self: Catalogue, *arguments: Any) -> Any:
            done = commit(self, *arguments)
            if any(getattr(update, "snapshot", None) for update in arguments[2]):
                server.kill()
            return done

        ways: list[tuple[Any, str, Any]] = [
            (files, "write", killed_before_the_commit),
            (Catalogue, "commit_table", killed_after_the_commit),
        ]
        for place, name, killed in ways:
            with monkeypatch.context() as patch:
                patch.setattr(place, name, killed)
                with pytest.raises(TablequeueError):  # of the stage, or of the count of what is ready
                    run(pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)
            server.start()
        run(pipeline, spark, f"{tmp_path}/checkpoints", available_now=True)
        assert counts(raw) == {"finished": 30}
        expected = sorted((message.id, message.pushed_at.replace(tzinfo=None)) for message in raw.history(100))
    for table in (lake.read(lake.delta), lake.read(lake.iceberg), ds.dataset(tmp_path / "parquet").to_table()):
        times = [time.replace(tzinfo=None) for time in table["pushed_at"].to_pylist()]  # Spark's files name no zone
        assert sorted(zip(table["id"].to_pylist(), times, strict=True)) == expected
