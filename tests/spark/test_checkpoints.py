"""A checkpoint is of one database, one queue or topic, and one stream: any other is refused before anything is done.

The calls are those that Spark makes of a source.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

from tablequeue import Database, Queue
from tablequeue.bulk import identity as identities
from tablequeue.bulk import stream
from tablequeue.bulk.identity import Identity
from tablequeue.errors import StreamRefused
from tablequeue.ext import context_of
from tablequeue.spark import checkpoints
from tablequeue.spark.checkpoints import Origin
from tablequeue.spark.options import Options
from tablequeue.spark.reconcile import reconcile
from tablequeue.spark.source import TableQueueSource
from tests.servers import Place
from tests.spark.named import by_options
from tests.support import counts, refuses

SCHEMA = StructType([StructField("id", LongType())])
LIMIT = ReadMaxRows(10)


@pytest.fixture(autouse=True)
def connections_are_closed(place: Place) -> Iterator[None]:
    yield
    Options.of_database(by_options(place)).connect().close()


def reader(place: Place, **options: str) -> Any:
    if "queue" in options:
        options.setdefault("stream", "lake")
    return TableQueueSource(by_options(place) | options).streamReader(SCHEMA)


def two_batches(place: Place, **options: str) -> dict[str, Any]:
    """Return the checkpoint of a run whose second batch is in no sink: of a queue it is open."""
    source = reader(place, **options)
    offset: dict[str, Any] = source.initialOffset()
    for _ in range(2):
        offset = source.latestOffset(offset, LIMIT)
    return json.loads(json.dumps(offset))


def filled(db: Database, name: str) -> Queue:
    queue = db.create_queue(name)
    queue.push_many({"n": n} for n in range(20))
    return queue


def check_refused(place: Place, queue: Queue, offset: dict[str, Any], **options: str) -> str:
    """A run with that checkpoint is refused by its first call, whichever it is. Nothing is completed, and the run that
    goes on is not fenced."""
    before = counts(queue), stream.streams(queue)
    options.setdefault("queue", queue.name)
    refusals = {
        refuses(StreamRefused, reader(place, **options).latestOffset, offset, LIMIT).cause,
        refuses(StreamRefused, reader(place, **options).partitions, offset, offset).cause,
    }
    available_now = reader(place, **options)
    available_now.prepareForTriggerAvailableNow()
    refusals.add(refuses(StreamRefused, available_now.latestOffset, offset, LIMIT).cause)
    assert (counts(queue), stream.streams(queue)) == before
    (cause,) = refusals
    return cause


def check_queue(place: Place, db: Database) -> None:
    orders, refunds = filled(db, "orders"), filled(db, "refunds")
    of_orders = two_batches(place, queue="orders")
    two_batches(place, queue="refunds")
    assert check_refused(place, refunds, of_orders) == (
        "The checkpoint is of the stream 'lake' of the queue 'orders', and is used for the stream 'lake' of the queue "
        "'refunds'."
    )
    refused = refuses(StreamRefused, reader(place, topic=db.create_topic("events").name).latestOffset, of_orders, LIMIT)
    assert "is used for the topic 'events'" in refused.cause
    assert reader(place, queue="orders").latestOffset(of_orders, LIMIT)["batch"] == 2
    assert orders.stats().finished == 20


def check_stream(place: Place, db: Database) -> None:
    orders = filled(db, "orders")
    orders.push_many({"n": n} for n in range(20))
    of_lake = two_batches(place, queue="orders")
    two_batches(place, queue="orders", stream="pond")
    assert "of the stream 'lake' of the queue 'orders', and is used for the stream 'pond'" in check_refused(
        place, orders, of_lake, stream="pond"
    )


def check_dropped(place: Place, db: Database) -> None:
    filled(db, "orders")
    before = two_batches(place, queue="orders")
    db.queue("orders").drop()
    again = filled(db, "orders")
    two_batches(place, queue="orders")
    assert (
        check_refused(place, again, before) == "The queue 'orders' was dropped and created again since the checkpoint."
    )


def check_database(place: Place, db: Database) -> None:
    """A copy of the database has the same numbers, and other messages. It is declared a copy."""
    orders, events = filled(db, "orders"), db.create_topic("events")
    events.push_many({"n": n} for n in range(20))
    of_orders, of_events = two_batches(place, queue="orders"), two_batches(place, topic="events")
    original, copy = db.identity(), db.renew_identity()
    assert original != copy
    for cause in (
        check_refused(place, orders, of_orders),
        refuses(StreamRefused, reader(place, topic="events").latestOffset, of_events, LIMIT).cause,
        refuses(StreamRefused, reader(place, topic="events").partitions, of_events, of_events).cause,
    ):
        assert f"in the database with the identity {original}, and is used for" in cause
        assert f"in the database with the identity {copy}." in cause


def check_copy(place: Place, db: Database) -> None:
    """Nobody has declared the copy. Its open batch has the same number, and the checkpoint knows another one."""
    orders = filled(db, "orders")
    offset = two_batches(place, queue="orders") | {"token": "0" * 32}
    assert (
        "is not the one that the checkpoint knows"
        in refuses(StreamRefused, reader(place, queue="orders").latestOffset, offset, LIMIT).cause
    )
    refuses(StreamRefused, reader(place, queue="orders").partitions, offset | {"batch": 1}, offset)
    assert orders.stats().in_progress == 10


CHECKS = [check_queue, check_stream, check_dropped, check_database, check_copy]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_checkpoint_of_anything_else_is_refused(place: Place, db: Database, check: Callable[..., None]) -> None:
    check(place, db)


def test_what_was_renamed_is_the_same(place: Place, db: Database) -> None:
    orders, events = filled(db, "orders"), db.create_topic("events")
    events.push_many({"n": n} for n in range(20))
    of_orders, of_events = two_batches(place, queue="orders"), two_batches(place, topic="events")
    db.rename("orders", "purchases")
    db.rename("events", "clicks")
    source = reader(place, queue="purchases")
    assert source.latestOffset(of_orders, LIMIT) == of_orders, "to the letter: else Spark would begin a batch"
    assert db.queue("purchases").stats().finished == 20
    assert reader(place, topic="clicks").latestOffset(of_events, LIMIT) == of_events
    assert orders.stats().in_progress == 0


def test_other_sources(place: Place, db: Database) -> None:
    filled(db, "orders")
    for offset in ({"logOffset": 3}, {"queue": "orders", "stream": "lake", "batch": 1}):
        refuses(StreamRefused, reader(place, queue="orders").latestOffset, offset, LIMIT)
    assert db.queue("orders").stats().finished == 0


def test_reconcile_refuses_it_too(place: Place, db: Database, tmp_path: Path) -> None:
    orders = filled(db, "orders")
    offset = two_batches(place, queue="orders")
    (tmp_path / "metadata").touch()
    for folder, text in (("commits", "v1\n{}"), ("offsets", f"v1\n{{}}\n{json.dumps(offset)}")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "1").write_text(text)
    db.rename("orders", "purchases")
    filled(db, "orders")
    identity = db.identity()
    db.renew_identity()
    assert f"identity {identity}" in refuses(StreamRefused, reconcile, tmp_path, db).cause
    context = context_of(orders)
    table = context.engine.common_words()["identity"]
    place.execute(f"update {table} set id = '{identity}'")  # noqa: S608 (what it is in the database)
    assert [place.batch for place in reconcile(tmp_path, db)] == [2]
    assert (orders.stats().finished, db.queue("orders").stats().finished) == (20, 0)


# -- mutants: faults that the checks detect ----------------------------------------------------------------------------


def forgets(**constant: str) -> Callable[[pytest.MonkeyPatch], None]:
    """A comparison without a part."""

    def fault(monkeypatch: pytest.MonkeyPatch) -> None:
        def identity_of(opened: Any) -> Identity:
            return identities.identity_of(opened)._replace(**constant)

        monkeypatch.setattr(checkpoints, "identity_of", identity_of)

    return fault


def compares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Origin, "check", lambda self, offset: None)


def forgets_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    init = Origin.__init__
    monkeypatch.setattr(Origin, "__init__", lambda self, source, stream=None: init(self, source))


def forgets_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_check_token", lambda *values: None)


FAULTS = [
    (compares_nothing, check_queue),
    (forgets(table="tq"), check_queue),
    (forgets(table="tq"), check_dropped),
    (forgets(database="here"), check_database),
    (forgets_the_stream, check_stream),
    (forgets_the_token, check_copy),
]


@pytest.mark.parametrize(("fault", "check"), FAULTS)
def test_a_broken_comparison_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Any, check: Callable[..., None]
) -> None:
    place = Place(f"sqlite:///{tmp_path / 'work.db'}", None)
    fault(monkeypatch)
    try:
        with pytest.raises((AssertionError, pytest.fail.Exception, KeyError, StreamRefused)):
            check(place, place.open())
    finally:
        place.close()
