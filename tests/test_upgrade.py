"""Schema versions: the mechanism of upgrades, tried with a version that does not exist yet."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import tablequeue
from tablequeue import Database
from tablequeue.engines.base import EngineBase
from tablequeue.engines.catalogue import UPGRADES
from tablequeue.errors import SchemaTooNew, SchemaTooOld
from tests.servers import Kind, Place
from tests.support import claimed, counts, refuses

pytestmark = pytest.mark.quick


def next_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process work with the next schema version, in which each queue has the index of messages that expire."""
    monkeypatch.setitem(UPGRADES, EngineBase.schema_version + 1, {"create_expiry": "states"})
    monkeypatch.setattr(EngineBase, "schema_version", EngineBase.schema_version + 1)


@pytest.fixture
def before(place: Place, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Queues, a topic and a subscription of the version before this one, and the version of each."""
    database = place.open()
    work = database.create_queue("work", max_attempts=1)
    work.push_many(range(5))
    claimed(work).complete()
    claimed(work).fail("no")
    work.push("later", delay=3600)
    held = claimed(work)
    assert held.payload == 2
    database.create_queue("teams", groups=True).push_many(range(4), group="a")
    database.create_topic("events").subscribe("mail")
    database.topic("events").push_many(range(3))
    versions = dict.fromkeys([*database.queues(), "events", "events/mail"], database.schema_version)
    next_version(monkeypatch)
    return versions


def test_an_old_queue_is_refused_until_it_is_upgraded(place: Place, before: dict[str, int]) -> None:
    database = place.open()
    for name in ("work", "teams"):
        assert "upgrade" in refuses(SchemaTooOld, database.queue, name).remedy
    refuses(SchemaTooOld, database.create_queue, "work")
    refuses(SchemaTooOld, database.topic, "events")
    assert database.create_queue("new").push(1) == 1
    versions = database.upgrade()
    assert versions.pop("new") == database.schema_version
    assert versions == before
    assert set(database.upgrade().values()) == {database.schema_version}


def test_nothing_is_lost(place: Place, kind: Kind, before: dict[str, int]) -> None:
    database = place.open()
    database.upgrade()
    work = database.queue("work")
    assert counts(work) == {"ready": 2, "scheduled": 1, "in_progress": 1, "dead": 1, "finished": 1}
    assert sorted(claim.payload for claim in work.pop_many(10)) == [3, 4]
    assert [claim.payload for claim in database.queue("teams").pop_many(5)] == [0]
    assert [claim.payload for claim in database.subscription("events/mail").pop_many(5)] == [0, 1, 2]
    assert [finding for finding in database.doctor() if "index" in finding.cause] == []
    if kind.name == "mariadb":
        # As after a crash in the middle, because each statement commits by itself.
        place.execute(f"update {place.table('queues')} set schema_version = schema_version - 1")  # noqa: S608
        assert database.upgrade() == before


def test_many_upgrade_at_once(place: Place, before: dict[str, int]) -> None:
    databases = [place.open() for _ in range(8)]
    with ThreadPoolExecutor(len(databases)) as threads:
        found = list(threads.map(Database.upgrade, databases))
    for name, version in before.items():
        assert sorted(each[name] for each in found) == [version] + [version + 1] * 7, "one of them did it"


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
