"""A queue as a stream: completed when Spark's checkpoint says that it is safe, and not before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tablequeue import Database, Queue
from tablequeue.bulk import stream
from tablequeue.bulk.stream import Stream
from tablequeue.cli import main
from tablequeue.spark.microbatch import MicroBatchReader
from tablequeue.spark.options import Options
from tests.servers import Place
from tests.spark.named import by_options


def source(spark: Any, place: Place, queue: Queue, name: str = "lake", **options: Any) -> Any:
    reader = spark.readStream.format("tablequeue").options(**by_options(place), queue=queue.name, stream=name)
    return reader.options(**options).load()


def start(frame: Any, folder: Path, **options: Any) -> Any:
    """Into Parquet, all that is there and no more."""
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(availableNow=True).start(str(folder / "lake"), **options)


def drain(frame: Any, folder: Path) -> None:
    start(frame, folder).awaitTermination()


def numbers(spark: Any, folder: Path) -> list[int]:
    return sorted(int(row.payload) for row in spark.read.parquet(str(folder / "lake")).collect())


def test_all_that_is_there_once_and_in_the_history(spark: Any, db: Database, place: Place, tmp_path: Path) -> None:
    queue = db.create_queue("work", payload="text")
    queue.push_many(map(str, range(25)))
    frame = source(spark, place, queue, maxMessagesPerTrigger=10)
    query = start(frame, tmp_path)
    query.awaitTermination()
    assert [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]] == [10, 10, 5]
    queue.push_many(map(str, range(25, 30)))
    drain(frame, tmp_path)
    assert numbers(spark, tmp_path) == list(range(30))
    assert sorted(int(message.payload) for message in queue.history()) == list(range(30))
    assert queue.history(1)[0].consumer == "lake"
    assert queue.stats().in_progress == 0


def test_columns(spark: Any, db: Database, place: Place, tmp_path: Path) -> None:
    queue = db.create_queue("work", payload="bytes", groups=True)
    queue.push(b"\0\xff", group="a", headers={"n": 1})
    frame = source(spark, place, queue, columns="group,payload,headers,attempts,pushed_at")
    assert frame.columns == ["group", "payload", "headers", "attempts", "pushed_at"]
    drain(frame, tmp_path)
    (row,) = spark.read.parquet(str(tmp_path / "lake")).collect()
    assert (row.group, row.payload, row.headers, row.attempts) == ("a", b"\0\xff", '{"n":1}', 1)


class TestOnOneEngine:
    """What Spark itself does is the same on each."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> Any:
        place = Place(f"sqlite:///{tmp_path / 'work.db'}", None)
        yield place
        place.close()

    @pytest.fixture
    def queue(self, place: Place) -> Queue:
        queue = place.open().create_queue("work", payload="text")
        queue.push_many(map(str, range(20)))
        return queue

    def test_a_second_run_fences_the_first(self, spark: Any, place: Place, queue: Queue, tmp_path: Path) -> None:
        drain(source(spark, place, queue, maxMessagesPerTrigger=5), tmp_path)
        writer = source(spark, place, queue).writeStream.format("noop")
        query = writer.option("checkpointLocation", str(tmp_path / "other")).start()
        try:
            query.processAllAvailable()
            Stream(queue, "lake")
            with pytest.raises(Exception, match=r"was superseded by run \d+"):
                query.awaitTermination(60)
        finally:
            query.stop()

    def test_an_older_checkpoint_fails_loudly(self, spark: Any, place: Place, queue: Queue, tmp_path: Path) -> None:
        frame = source(spark, place, queue, maxMessagesPerTrigger=5)
        drain(frame, tmp_path)
        for log in ("commits", "offsets"):
            for file in (tmp_path / "checkpoint" / log).glob("*[123]*"):
                file.unlink()
        with pytest.raises(Exception, match="the checkpoint is older than the queue"):
            drain(frame, tmp_path)

    def test_a_lost_checkpoint_delivers_what_was_open_again(
        self, spark: Any, place: Place, queue: Queue, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run = Stream(queue, "lake")
        run.advance(run.advance(0, 5), 5)
        options = Options.parse({"url": place.url, "queue": "work", "stream": "lake"}, "stream")
        assert MicroBatchReader(options, ["id"]).initialOffset()["batch"] == 1
        assert "5 messages of batch 2, which the last run left open, are delivered again" in capsys.readouterr().err
        drain(source(spark, place, queue), tmp_path)
        assert numbers(spark, tmp_path) == list(range(5, 20))

    def test_reconcile_completes_what_a_stopped_query_had_finished(
        self, spark: Any, place: Place, queue: Queue, tmp_path: Path
    ) -> None:
        frame = source(spark, place, queue)
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(processingTime="1 hour").start()
        while not list((tmp_path / "checkpoint").glob("commits/0")):
            assert query.exception() is None
        query.stop()
        assert [state.open for state in stream.streams(queue)] == [20], "nobody has told the queue"
        words = ["--url", place.url, "stream", "reconcile", str(tmp_path / "checkpoint")]
        for _ in range(2):
            done = CliRunner().invoke(main, words, catch_exceptions=False)
            assert (done.exit_code, done.output) == (0, "work: the stream lake is completed up to batch 1.\n")
        assert len(queue.history()) == 20

    def test_reconcile_before_the_first_commit(self, place: Place, queue: Queue, tmp_path: Path) -> None:
        Stream(queue, "lake").advance(0, 5)
        words = ["--url", place.url, "stream", "reconcile", str(tmp_path)]
        refused = CliRunner().invoke(main, words)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "is not the checkpoint of a Spark query" in refused.stderr
        (tmp_path / "metadata").write_text('{"id":"0b6c"}')
        done = CliRunner().invoke(main, words, catch_exceptions=False)
        assert (done.exit_code, done.stdout) == (0, "")
        assert done.stderr == "No batch of a queue was committed yet: there is nothing to complete.\n"
        assert [state.open for state in stream.streams(queue)] == [5]

    def test_release_by_the_command(self, place: Place, queue: Queue) -> None:
        Stream(queue, "lake").advance(0, 5)
        shown = CliRunner().invoke(main, ["--url", place.url, "stream", "list", "work"], catch_exceptions=False)
        assert "lake" in shown.output
        done = CliRunner().invoke(main, ["--url", place.url, "stream", "release", "work", "lake"])
        assert (done.exit_code, done.output) == (0, "5 released\n")
        again = CliRunner().invoke(main, ["--url", place.url, "stream", "release", "work", "pond"])
        assert again.exit_code == 1
        assert "no stream 'pond'" in again.output
