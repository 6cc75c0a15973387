"""The history of a queue as a DataFrame, on every engine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter

from tablequeue import Database, PayloadType, Queue
from tablequeue.spark import batch
from tablequeue.spark.options import Options
from tests.servers import Place
from tests.spark.named import by_options

TIMES = ("pushed_at", "due_at", "first_popped_at", "popped_at", "finished_at")


def load(spark: Any, place: Place, queue: Queue, **options: Any) -> Any:
    return spark.read.format("tablequeue").options(**by_options(place), queue=queue.name, **options).load()


def finish_some(queue: Queue, payloads: list[Any]) -> None:
    """Finish every payload, the first of them in its second attempt."""
    queue.push_many(payloads, headers={"trace": "é"})
    first = queue.pop()
    assert first is not None
    first.fail("once more", retry_in=0)
    queue.complete_many(queue.pop_many(len(payloads)))


def test_rows_equal_the_history(spark: Any, db: Database, place: Place) -> None:
    queue = db.create_queue("work")
    finish_some(queue, [{"n": n, "word": "schön\t\\N"} for n in range(25)])
    rows = {row["id"]: row for row in load(spark, place, queue, partitions=3).collect()}
    history = queue.history(100)
    assert len(rows) == len(history) == 25
    for message in history:
        row = rows[message.id]
        assert json.loads(row["payload"]) == message.payload
        assert json.loads(row["headers"]) == message.headers
        assert (row["attempts"], row["producer"], row["consumer"]) == (
            message.attempts,
            message.producer,
            message.consumer,
        )
        errors = json.loads(row["errors"] or "[]")
        assert [error["error"] for error in errors] == [error.error for error in message.errors]
    as_micros = load(spark, place, queue).selectExpr("id", *(f"unix_micros({name}) as {name}" for name in TIMES))
    for row in as_micros.collect():
        message = next(message for message in history if message.id == row["id"])
        for name in TIMES:
            expected = getattr(message, name)
            assert row[name] == (None if expected is None else round(expected.timestamp() * 1e6)), name


@pytest.mark.parametrize(
    ("payload", "values", "column"),
    [("text", ["", "a\nb", "\U0001f600"], "string"), ("bytes", [b"", bytes(range(256))], "binary")],
)
def test_payload_types(
    spark: Any, db: Database, place: Place, payload: PayloadType, values: list[Any], column: str
) -> None:
    queue = db.create_queue("work", payload=payload)
    finish_some(queue, values)
    frame = load(spark, place, queue)
    assert dict(frame.dtypes)["payload"] == column
    assert [row["payload"] for row in frame.orderBy("id").collect()] == values


def test_nothing_finished_is_no_rows(spark: Any, db: Database, place: Place) -> None:
    queue = db.create_queue("work")
    queue.push({"still": "here"})
    assert load(spark, place, queue).collect() == []
    assert queue.stats().ready == 1, "reading claims nothing"


def test_a_range_of_ids(spark: Any, db: Database, place: Place) -> None:
    queue = db.create_queue("work")
    finish_some(queue, list(range(20)))
    ids = sorted(message.id for message in queue.history())
    frame = load(spark, place, queue, minId=ids[3], maxId=ids[7])
    assert sorted(row["id"] for row in frame.collect()) == ids[3:8]


@pytest.mark.parametrize(("ids", "parts"), [(5, 1), (11, 3), (20, 4)])
def test_a_part_of_a_read_has_enough_ids(
    db: Database, place: Place, monkeypatch: pytest.MonkeyPatch, ids: int, parts: int
) -> None:
    monkeypatch.setattr(batch, "LEAST_PER_TASK", 5)
    queue = db.create_queue("work")
    finish_some(queue, list(range(ids)))
    reader = batch.BatchReader(Options.parse({**by_options(place), "queue": "work"}, "read"), ["id"])
    found = [[id for rows in reader.read(part) for id in rows["id"].to_pylist()] for part in reader.partitions()]
    assert len(found) == parts
    assert sorted(id for each in found for id in each) == sorted(one.id for one in queue.history())


@pytest.fixture
def pushing(spark: Any) -> Iterator[Any]:
    """A session in which Spark pushes filters down to the sources that take them."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield spark
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_filters_of_one_frame_do_not_meet(pushing: Any, db: Database, place: Place) -> None:
    queue = db.create_queue("work")
    finish_some(queue, list(range(20)))
    ids = sorted(message.id for message in queue.history())
    frame = load(pushing, place, queue)
    both = frame.filter(frame.id == ids[1]).union(frame.filter(frame.id == ids[2]))
    assert sorted(row["id"] for row in both.collect()) == ids[1:3]
    assert frame.count() == 20


def test_spark_mixes_up_the_filters_that_a_source_takes(pushing: Any) -> None:
    """If this fails, Spark is mended, and docs/adr/0069 can be decided anew."""

    class Reader(DataSourceReader):
        ids: Iterable[int] = range(10)

        def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  (Spark's name)
            for one in filters:
                if isinstance(one, EqualTo):
                    self.ids = [one.value]
                else:
                    yield one

        def read(self, partition: Any) -> Iterator[tuple[int]]:
            return ((id,) for id in self.ids)

    class Taking(DataSource):
        @classmethod
        def name(cls) -> str:
            return "taking"

        def schema(self) -> str:
            return "id bigint"

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader()

    pushing.dataSource.register(Taking)
    frame = pushing.read.format("taking").load()
    both = frame.filter(frame.id == 1).union(frame.filter(frame.id == 2))
    assert [row["id"] for row in both.collect()] == [2, 2]
    assert frame.count() == 1


def test_the_url_by_an_environment_variable(spark: Any, environment: Database) -> None:
    queue = environment.create_queue("work")
    finish_some(queue, [1, 2])
    frame = spark.read.format("tablequeue").options(urlEnv="TABLEQUEUE_URL", queue="work").load()
    assert sorted(row.payload for row in frame.collect()) == ["1", "2"]
    with pytest.raises(Exception, match="The environment variable 'NOT_SET' is not set here"):
        spark.read.format("tablequeue").options(urlEnv="NOT_SET", queue="work").load()


def test_a_missing_queue_says_which_is_near(spark: Any, db: Database, place: Place) -> None:
    queue = db.create_queue("flights")
    with pytest.raises(Exception, match="Did you mean 'flights'"):
        spark.read.format("tablequeue").options(**by_options(place), queue="flight").load()
    assert queue.stats().ready == 0
