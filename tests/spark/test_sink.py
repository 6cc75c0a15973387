"""Spark writes messages: all of a job at once, and each batch of a stream once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tablequeue import Database, Queue
from tests.servers import Place
from tests.spark.named import by_options


def write(frame: Any, place: Place, queue: Queue, mode: str = "append", **options: Any) -> None:
    frame.write.format("tablequeue").mode(mode).options(**by_options(place), queue=queue.name, **options).save()


def test_a_job_pushes_all_of_its_rows(spark: Any, db: Database, place: Place) -> None:
    queue = db.create_queue("work", order="priority")
    frame = (
        spark.range(100)
        .repartition(3)
        .selectExpr(
            "to_json(struct(id)) as payload",
            "cast(id % 5 as int) as priority",
            "concat('key ', id) as key",
            '\'{"trace": "é"}\' as headers',
            "case when id < 10 then timestamp'2060-01-01 00:00:00' end as due",
        )
    )
    write(frame, place, queue, producer="spark job")
    assert (queue.stats().ready, queue.stats().scheduled) == (90, 10)
    messages = queue.peek(100)
    assert {(message.payload["id"], message.priority, message.key) for message in messages} == {
        (n, n % 5, f"key {n}") for n in range(10, 100)
    }
    assert {(message.producer, message.headers["trace"]) for message in messages} == {("spark job", "é")}
    with pytest.raises(Exception, match="have keys of it: key 0"):
        write(frame, place, queue)
    write(frame, place, queue, onConflict="skip")
    assert (queue.stats().ready, queue.stats().scheduled) == (90, 10)


def test_a_job_that_fails_leaves_nothing(spark: Any, db: Database, place: Place) -> None:
    queue = db.create_queue("work", payload="text")
    frame = spark.range(2000).repartition(2).selectExpr("if(id = 1999, raise_error('boom'), string(id)) as payload")
    with pytest.raises(Exception, match="boom"):
        write(frame, place, queue)
    assert queue.stats().ready == 0


def test_each_batch_of_a_stream_once(spark: Any, db: Database, place: Place, tmp_path: Path) -> None:
    queue = db.create_queue("work", payload="text")
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()
    frame = spark.readStream.text(str(source)).selectExpr("value as payload")

    def drain(number: int) -> None:
        (source / f"{number}.txt").write_text(f"{number}\n")
        writer = frame.writeStream.format("tablequeue").options(**by_options(place), queue=queue.name)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()

    drain(0)
    drain(1)
    for file in (checkpoint / "commits").glob("*1*"):
        file.unlink()  # as if Spark had died before its commit log: it writes the batch again
    drain(2)
    assert [message.payload for message in queue.peek()] == ["0", "1", "2"]


class TestOnOneEngine:
    """What is refused before any engine is asked."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> Any:
        place = Place(f"sqlite:///{tmp_path / 'work.db'}", None)
        yield place
        place.close()

    @pytest.mark.parametrize(
        ("columns", "words"),
        [
            (["id"], "no column payload"),
            (["id as payload"], "column payload is a bigint"),
            (["'x' as payload", "1 as priority"], "takes no column 'priority'"),
            (["'x' as payload", "'now' as due"], "column due is a string"),
            (["string(null) as payload"], "A payload is null"),
        ],
    )
    def test_refused(self, spark: Any, place: Place, columns: list[str], words: str) -> None:
        queue = place.open().create_queue("work", payload="text")
        with pytest.raises(Exception, match=words):
            write(spark.range(2).selectExpr(*columns), place, queue)
        assert queue.stats().ready == 0

    def test_a_queue_cannot_be_overwritten(self, spark: Any, place: Place) -> None:
        queue = place.open().create_queue("work", payload="text")
        with pytest.raises(Exception, match="cannot be overwritten"):
            write(spark.range(2).selectExpr("'x' as payload"), place, queue, mode="overwrite")

    def test_a_numbered_batch_of_a_writer_once(self, spark: Any, place: Place) -> None:
        queue = place.open().create_queue("work")
        frame = spark.range(3).selectExpr("to_json(struct(id)) as payload")
        for number in (1, 1, 2):
            write(frame, place, queue, writer="etl", batch=number)
        with pytest.raises(Exception, match="is of another checkpoint"):
            write(frame, place, queue, writer="etl", batch=0)
        assert queue.stats().ready == 6
        assert json.loads(json.dumps(queue.peek(1)[0].payload)) == {"id": 0}


def test_no_password_is_shown(spark: Any, place: Place, db: Database, tmp_path: Path) -> None:
    """The URL comes from a file; neither the plan, the checkpoint, the progress nor an error has what is in it."""
    secret = "s3cret-pass"
    queue = db.create_queue("work", payload="text")
    queue.push("x")
    file = tmp_path / "url"
    url = place.url
    if "://" in url and "@" in url:
        head, _, tail = url.partition("://")
        user, _, rest = tail.partition("@")
        url = f"{head}://{user.partition(':')[0]}:{secret}@{rest}"
    file.write_text(url)
    options = {"urlFile": str(file), "queue": "work", **({"schema": place.schema} if place.schema else {})}
    told = []
    try:
        frame = spark.read.format("tablequeue").options(**options, table="queue").load()
        told.append(frame._jdf.queryExecution().toString())
        frame.collect()
        read = spark.readStream.format("tablequeue").options(**options, stream="lake").load()
        query = read.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        running = query.trigger(availableNow=True).start()
        running.awaitTermination()
        told += [str(running.recentProgress), running._jsq.explainInternal(True)]
    except Exception as error:  # a server that asks for the password refuses this one
        told.append(str(error))
    missing = {**options, "queue": "missing"}
    with pytest.raises(Exception, match=r"no queue|refused the login") as caught:
        spark.read.format("tablequeue").options(**missing).load()
    told.append(str(caught.value))
    told += [file.read_text(errors="replace") for file in (tmp_path / "checkpoint").rglob("*") if file.is_file()]
    assert all(secret not in each for each in told)
