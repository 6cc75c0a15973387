"""Schema versions: the first schema, stored with messages in every state, becomes the present one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tablequeue
from tablequeue import Database, NewMessage
from tablequeue.errors import QueueDiffers, SchemaTooNew, SchemaTooOld
from tablequeue.message import Claim
from tests.servers import Kind, Place
from tests.support import claimed, counts, ids_of, refuses

FIXTURES = Path(__file__).parent / "fixtures"
# The claim that the fixture's third message is held under.
HELD = {"sqlite": "13e3f1124cd9772b6f6e3641725f4c5c", "postgresql": "6575a350653ae54b4a1d51af1023523c"}


@pytest.fixture
def first(place: Place, kind: Kind) -> Place:
    """A place with three queues of schema version 1."""
    script = FIXTURES / f"schema_1.{kind.name}.sql"
    if not script.exists():
        pytest.skip("this engine was not there at version 1")
    place.run_script(
        script.read_text("utf-8").replace("first.", f"{place.schema}.").replace(" first;", f" {place.schema};")
    )
    return place


def test_an_old_queue_is_refused_until_it_is_upgraded(first: Place) -> None:
    database = first.open()
    assert database.queues() == ["plain", "words", "work"]
    error = refuses(SchemaTooOld, database.queue, "work")
    assert "upgrade" in error.remedy
    refuses(SchemaTooOld, database.create_queue, "words", payload="text")
    assert database.upgrade() == {"plain": 1, "words": 1, "work": 1}
    assert database.upgrade() == dict.fromkeys(database.queues(), database.schema_version)


def test_nothing_is_lost(first: Place, kind: Kind) -> None:
    database = first.open()
    database.upgrade()
    work = database.queue("work")
    assert counts(work) == {"ready": 1, "scheduled": 2, "in_progress": 1, "dead": 1, "finished": 1}
    (done,) = work.history()
    assert (done.id, done.payload, done.headers, done.producer, done.group, done.key) == (
        1, {"n": 0}, {"trace": "é"}, "first", None, None
    )  # fmt: skip
    (letter,) = work.dead()
    assert [error.error for error in letter.errors] == ["dead 1", "dead 2"]
    Claim.of(work, 3, HELD[kind.name]).complete()
    assert [claim.payload for claim in database.queue("plain").pop_many(5)] == [b"\0\xff", b""]
    assert claimed(database.queue("words")).payload == "zwölf"
    assert work.redrive() == 1
    assert sorted(ids_of(work.pop_many(10))) == [2, 4, 5]


def test_an_upgraded_queue_is_as_good_as_a_new_one(first: Place) -> None:
    database = first.open()
    database.upgrade()
    work = database.queue("work")
    id = work.push("x", key="a")
    assert work.push("y", key="a", on_conflict="return") == id
    assert work.push_many([NewMessage("y", key="a"), "z"], on_conflict="skip") == [None, id + 3]
    work.complete_many(work.pop_many(10))
    assert {message.key for message in work.history()} == {None, "a"}
    finished = len(work.history())
    assert work.purge_history(0) == finished
    assert work.history() == []
    with first.sa_engine().connect() as connection:
        work.push("taken")
        assert work.take(connection) is not None
        connection.commit()
    again = database.create_queue("words", payload="text")
    again.push("neu")
    refuses(QueueDiffers, database.create_queue, "words", payload="json")
    for name in database.queues():
        database.queue(name).drop()
    assert database.queues() == []


def test_many_upgrade_at_once(first: Place) -> None:
    databases = [first.open() for _ in range(8)]
    with ThreadPoolExecutor(len(databases)) as threads:
        found = list(threads.map(Database.upgrade, databases))
    for name in databases[0].queues():
        versions = sorted(each[name] for each in found)
        assert versions == [1] + [databases[0].schema_version] * 7, "one of them did it"
    assert counts(databases[0].queue("work"))["ready"] == 1


def test_a_newer_schema_is_refused(db: Database, place: Place) -> None:
    db.create_queue("work").push("x")
    place.execute(f"update {place.table('queues')} set schema_version = {db.schema_version + 1}")  # noqa: S608
    for call in (db.queue, db.create_queue):
        error = refuses(SchemaTooNew, call, "work")
        assert str(db.schema_version + 1) in error.cause
        assert "newer tablequeue" in error.remedy
    refuses(SchemaTooNew, db.upgrade)
    with tablequeue.connect(place.url, schema=place.schema) as database:
        assert database.queues() == ["work"]
