"""Schema versions: old schemas, stored with messages in every state, are upgraded to the current one."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa

import tablequeue
from tablequeue import ALL, Database, NewMessage
from tablequeue.bulk import staging
from tablequeue.bulk.stream import Stream
from tablequeue.errors import BatchNotFound, QueueDiffers, SchemaTooNew, SchemaTooOld
from tablequeue.ext import context_of
from tablequeue.model.message import Claim
from tablequeue.verbs import schedule
from tests.servers import Kind, Place
from tests.support import claimed, counts, ids_of, refuses

pytestmark = pytest.mark.quick

FIXTURES = Path(__file__).parent / "fixtures"
# The claims under which messages of the fixtures are held.
HELD = {"sqlite": "13e3f1124cd9772b6f6e3641725f4c5c", "postgresql": "6575a350653ae54b4a1d51af1023523c"}
HELD_3 = {
    "sqlite": "6f68d0ffb58d2b297f141a1aaf0b6009",
    "postgresql": "c493c490b385428ec3d1913d2205a89e",
    "mariadb": "95d1633176f14a57c25c698ff32ef03a",
}
PACK = "85a5213b3e70889b846c690401616055"
HELD_4 = {
    "sqlite": {"work": "a95d1d8771dcaf41f6210cec99b2ef83", "mail": "f92c18827b8a6921159489cfad2ca453"},
    "postgresql": {"work": "93e91e6562b4e0ff6f3f0a2ef040aa09", "mail": "2c1fd3fa22f084bd1acb7aedb55b48c6"},
    "mariadb": {"work": "c21fb42867b4a6395474524cd9624643", "mail": "03fb229e5247db182d0d5a92638aad57"},
}
PACK_4 = "ba5d32ad0f94b8f7f7e4b2255affa795"
HELD_5 = {
    "sqlite": {
        "work": "f957a61710f2e7d310e31523cc02807e",
        "teams": "9ec5131c41b1696e774be475ff56ce5e",
        "limited": "18b2f0ef18dfd29d0dcf52e1a1bab9d5",
        "mail": "731e7fd1ce24b8fbe5b2dc092dc507b5",
        "ship": "ed843183f4e473aa4206a3b86b7e2183",
    },
    "postgresql": {
        "work": "4ae4ab8d0a3db656e79bfa5a0eb95e75",
        "teams": "7f5bfbf1999518ac5a8284c3052334ee",
        "limited": "500186b4c3fea1ad4e29cd438f88da3c",
        "mail": "d1383ee7d8e948fd04ff99379d9d05af",
        "ship": "0f4710c683cb7b11931ac6c68c7edaa6",
    },
    "mariadb": {
        "work": "cde063c3202525c0b365503e877ef6ee",
        "teams": "1468c7498bf0cee51c1cfd1e3477001e",
        "limited": "bcfc90bb66fec065882e64f5c45a5ba7",
        "mail": "d8864dddb166cc5c6e4462c821e1f624",
        "ship": "1a90af1a3d1228712f2eab7b89d65ba3",
    },
}
PACK_5 = "4ef87bc81c33763de4249c1bc5ae316f"


HELD_6 = {
    "sqlite": {
        "work": "9d28d9634899b1a8e7b5a2e78414e9b6",
        "packed": "8f2a109d7344de850efbf856e48d61e4",
        "mail": "6f8e9ab28eafe48cf07800f84c446bea",
        "range": "24fbe4f050290dcd8c62e3a322b9c87c",
    },
    "postgresql": {
        "work": "b1abbd6dc13004e991a315cf6753ba96",
        "packed": "2c505adb6548b17788536aec0a7d866e",
        "mail": "88eb2faa9e2db7c9a2252a6245806582",
        "range": "f1fe951d570f5dfc5dbb0321314212af",
    },
    "mariadb": {
        "work": "ec75abce9dfe0d5ad1319df7441c567c",
        "packed": "4033ffaf5605bb9bf773865e3fe88d14",
        "mail": "3c0da3874cda1332e41a17a4d5650bca",
        "range": "ad5084f37f6b0f75735584d94a17ecd3",
    },
}
HELD_7 = {
    "sqlite": "1353b9966c3704755b48145e69fc36ec",
    "postgresql": "7f916ca55a3ba4dec0d83c14ed63ae0e",
    "mariadb": "270f28d7b522c9ee6c7f2a38942d14e7",
}


@pytest.fixture
def first(place: Place, kind: Kind) -> Place:
    """A place with three queues of schema version 1."""
    return filled(place, kind, 1)


@pytest.fixture
def third(place: Place, kind: Kind) -> Place:
    """A place with queues of the last version in which parts could have the names of queues.

    `work` has an open batch of a stream, `lines` a writer and a schedule, `teams` two groups of two messages each, on
    PostgreSQL `packed` a claim of 250 messages. `work_staged` is a queue, and no part of `work`.
    """
    return filled(place, kind, 3)


@pytest.fixture
def fourth(place: Place, kind: Kind) -> Place:
    """A place with the queues `work` and `plain`, and the topic `events` with the subscription `mail`, of version 4.

    `mail` has a range in progress and a detached message. On PostgreSQL `packed` has a claim of 250 messages.
    """
    return filled(place, kind, 4)


@pytest.fixture
def fifth(place: Place, kind: Kind) -> Place:
    """A place of version 5, with queues of several designs, a stream, and two topics.

    `work`, `teams` and `limited` have a message in progress, `events/mail` a range in progress and a detached message,
    `kept/ship` a message in progress; `kept` has segments and groups, and `ship` is ordered. `lake` has an open batch
    of the stream `spark`. On PostgreSQL `packed` has a claim of 250 messages.
    """
    return filled(place, kind, 5)


@pytest.fixture
def sixth(place: Place, kind: Kind) -> Place:
    """A place of version 6, in which PostgreSQL had a claim of many messages in one row, a *pack*.

    `packed` has one of six messages and a ready one; the lease of all six of `lapsed` has expired. `work` has a message
    in progress; `events/mail` seven detached messages and two of a range in progress; `batched` an open batch.
    """
    return filled(place, kind, 6)


@pytest.fixture
def seventh(place: Place, kind: Kind) -> Place:
    """A place of version 7, with the queues `plain` and `batched`, which has results.

    A batch of three messages is open in `batched`: the first is finished, and the second one in progress.
    """
    return filled(place, kind, 7)


def filled(place: Place, kind: Kind, version: int, **renamed: str) -> Place:
    script = FIXTURES / f"schema_{version}.{kind.name}.sql"
    if not script.exists():
        pytest.skip("this engine was not there at that version")
    text = script.read_text("utf-8")
    if place.schema:
        text = re.sub(r"\bfirst(?=[.;])", place.schema, text)
    for old, new in renamed.items():
        text = text.replace(old, new)
    place.run_script(text)
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
    assert work.redrive(ALL) == 1
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


def test_parts_get_names_that_no_queue_has(third: Place, kind: Kind) -> None:
    database = third.open()
    refuses(SchemaTooOld, database.queue, "work")
    versions = database.upgrade()
    assert set(versions.values()) == {3 if kind.name == "postgresql" else 2}
    for name in database.queues():
        database.queue(name).stats(window=60)
    assert [finding for finding in database.doctor() if "index" in finding.cause] == []
    # As after a crash in the middle, on engines where each statement commits by itself.
    if kind.name == "mariadb":
        third.execute(f"update {third.table('queues')} set schema_version = 2")  # noqa: S608 (a name of ours)
        assert set(database.upgrade().values()) == {2}
    # The contents of the parts are kept: a batch of a stream, the number of a writer, the time of a schedule.
    work, lines = database.queue("work"), database.queue("lines")
    stream = Stream(work, "lake")
    assert stream.batch(1)[1] == [4, 5]
    stream.complete(1)
    assert counts(work) == {"ready": 1, "scheduled": 1, "in_progress": 1, "dead": 1, "finished": 3}
    Claim.of(work, 2, HELD_3[kind.name]).complete()
    staging.prepare(lines)
    assert staging.publish(lines, "a" * 32, [], writer="job", batch=3) is None, "that batch was published"
    assert schedule.state(context_of(lines), "nightly", None)[0] == datetime(2026, 1, 1, tzinfo=UTC)
    if kind.name == "postgresql":  # version 7 has unpacked it
        packed = database.queue("packed")
        packed.complete_many(Claim.of(packed, id, PACK) for id in range(1, 251))
        assert counts(packed) == {"finished": 250}


def test_groups_go_on(third: Place) -> None:
    database = third.open()
    database.upgrade()
    teams = database.queue("teams")
    teams.push("a", group="a")
    seen: list[str] = []
    while batch := teams.pop_many(10):
        seen += [claim.payload for claim in batch]
        teams.complete_many(batch)
    assert sorted(seen) == ["a", "a", "a", "b", "b"]


def test_a_neighbour_of_an_old_queue_survives_it(third: Place) -> None:
    database = third.open()
    database.upgrade()
    neighbour = database.queue("work_staged")
    database.queue("work").drop()
    assert [claim.payload for claim in neighbour.pop_many(5)] == ["one", "two"]
    odd = database.queue("old_history")
    assert claimed(odd).payload == b"\0\xff"
    refuses(QueueDiffers, database.create_queue, "old")
    assert database.create_queue("old", history="none").push(1) == 1


def test_a_queue_with_the_name_of_a_part_of_another_one_is_refused_with_a_remedy(place: Place, kind: Kind) -> None:
    database = filled(place, kind, 3, work_staged="work__ready").open()
    queues = place.table("queues")
    for name in ("work__ready", "neighbour"):
        error = refuses(QueueDiffers, database.upgrade)
        assert f"{name!r}" in error.cause
        assert place.execute(f"select schema_version from {queues} where name = 'work'") in ([(2,)], [(3,)])  # noqa: S608
        if name == "work__ready":
            database.rename(name, "neighbour")  # its table keeps the name
    # The remedy: everything else is upgraded.
    assert claimed(database.queue("lines"))
    kept = database.create_queue("kept", payload="text")
    assert len(database.queue("neighbour").move(ALL, to=kept)) == 2
    database.queue("neighbour").drop()
    database.upgrade()
    assert counts(database.queue("work"))["in_progress"] > 0
    assert [claim.payload for claim in kept.pop_many(5)] == ["one", "two"]


def test_a_queue_of_version_3_can_be_renamed(third: Place) -> None:
    """Its entry in the catalogue does not name its table."""
    database, other = third.open(), third.open()
    database.upgrade()
    source, sending = database.create_queue("source", payload="text"), other.queue("source")
    context_of(sending).next_look = 1.0
    source.alter(dead_letter_to="work_staged")
    sending.push("three")
    claimed(sending).fail("no", retry=False)
    database.rename("work_staged", "renamed")
    assert [claim.payload for claim in third.open().queue("renamed").pop_many(5)] == ["one", "two", "three"]


def test_topics_and_queues_of_version_4_go_on(fourth: Place, kind: Kind) -> None:
    database = fourth.open()
    refuses(SchemaTooOld, database.queue, "work")
    # A new queue beside them changes the catalogue, and not them.
    database.create_queue("new").push(1)
    refuses(SchemaTooOld, database.topic, "events")
    versions = database.upgrade()
    assert versions.pop("new") == database.schema_version
    assert set(versions.values()) == {4}
    work, mail = database.queue("work"), database.subscription("events/mail")
    assert counts(work) == {"ready": 2, "scheduled": 1, "in_progress": 1, "dead": 1, "finished": 1}
    assert [message.state for message in work.history()] == ["finished"]
    Claim.of(work, 2, HELD_4[kind.name]["work"]).complete()
    Claim.of(mail, 3, HELD_4[kind.name]["mail"]).complete()
    database.topic("events").push_many(range(6, 2006))
    assert [claim.payload for claim in mail.pop_many(3000)] == [*range(3, 2006)]
    assert claimed(database.queue("plain")).payload == "zwölf"
    if kind.name == "postgresql":
        packed = database.queue("packed")
        packed.complete_many(Claim.of(packed, id, PACK_4) for id in range(1, 251))
        assert counts(packed) == {"finished": 250}
    assert [finding for finding in database.doctor() if "index" in finding.cause] == []
    # As after a crash in the middle, on engines where each statement commits by itself.
    if kind.name == "mariadb":
        fourth.execute(f"update {fourth.table('queues')} set schema_version = 4")  # noqa: S608 (a name of ours)
        assert set(database.upgrade().values()) == {4}


def test_queues_topics_and_streams_of_version_5_go_on(fifth: Place, kind: Kind) -> None:
    database = fifth.open()
    refuses(SchemaTooOld, database.queue, "work")
    # A new queue beside them changes the catalogue, and not them.
    database.create_queue("new").push(1)
    versions = database.upgrade()
    assert versions.pop("new") == database.schema_version
    assert set(versions.values()) == {5}
    held = HELD_5[kind.name]
    work, mail, ship = (database.consumer(name) for name in ("work", "events/mail", "kept/ship"))
    Claim.of(work, 2, held["work"]).complete()
    assert counts(work) == {"ready": 2, "scheduled": 1, "dead": 1, "finished": 2}
    limited = database.queue("limited")
    assert limited.definition.unique_for == 1e9  # its entry in the catalogue calls the option key_for
    Claim.of(limited, 1, held["limited"]).complete()
    Claim.of(mail, 3, held["mail"]).complete()
    database.topic("events").push_many(range(6, 2006))
    assert [claim.payload for claim in mail.pop_many(3000)] == [*range(4, 2006)]
    Claim.of(ship, 1, held["ship"]).complete()
    assert [claim.payload for claim in ship.pop_many(10)] == ["b", "a"]
    teams = database.queue("teams")
    Claim.of(teams, 1, held["teams"]).complete()
    assert sorted(claim.payload for claim in teams.pop_many(10)) == ["a", "b"]
    stream = Stream(database.queue("lake"), "spark")
    assert stream.batch(1)[1] == [1, 2]
    stream.complete(1)
    assert sorted(claim.payload for claim in database.queue("fair").pop_many(3)) == ["a", "a", "b"]
    assert claimed(database.queue("due")).payload == "due"
    if kind.name == "postgresql":
        packed = database.queue("packed")
        packed.complete_many(Claim.of(packed, id, PACK_5) for id in range(1, 251))
        assert counts(packed) == {"finished": 250}
    assert [finding for finding in database.doctor() if "index" in finding.cause] == []
    # As after a crash in the middle, on engines where each statement commits by itself.
    if kind.name == "mariadb":
        fifth.execute(f"update {fifth.table('queues')} set schema_version = 5")  # noqa: S608 (a name of ours)
        assert set(database.upgrade().values()) == {5}


def test_the_log_of_an_old_topic_with_groups_refuses_a_message_without_one(fifth: Place, kind: Kind) -> None:
    """One that it has already stops no ordered subscription, nor one that waits in its queue."""
    now = "0" if kind.name == "sqlite" else "current_timestamp"
    ungrouped = f"insert into {fifth.table('kept')} (pushed_at, payload) values ({now}, '\"alone\"')"  # noqa: S608
    if kind.name == "sqlite":
        waits = "insert into tq_kept__s1 (id, state, pushed_at, payload) values (1000, 'blocked', 0, '\"waited\"')"
        fifth.execute(waits)
    fifth.execute(ungrouped)
    database = fifth.open()
    database.upgrade()
    with pytest.raises(sa.exc.DatabaseError, match="group"):
        fifth.execute(ungrouped)
    ship = database.subscription("kept/ship")
    got = []
    while batch := ship.pop_many(10):
        got += [claim.payload for claim in batch]
        ship.complete_many(batch)
    assert "alone" in got
    assert ("waited" in got) is (kind.name == "sqlite")
    topic = database.topic("kept")
    topic.push("last", group="new")
    assert claimed(ship).payload == "last"
    assert topic.trim() == 0


def test_messages_in_packs_of_version_6_are_rows(sixth: Place, kind: Kind) -> None:
    database = sixth.open()
    refuses(SchemaTooOld, database.queue, "packed")
    assert set(database.upgrade().values()) == {6}
    held = HELD_6[kind.name]
    packed = database.queue("packed")
    assert counts(packed) == {"ready": 1, "in_progress": 6}
    claims = [Claim.of(packed, id, held["packed"]) for id in range(1, 7)]
    claims[0].fail("broken", retry_in=0)
    packed.complete_many(claims[1:])
    assert counts(packed) == {"ready": 2, "finished": 5}
    assert [message.payload for message in packed.history()] == [*"54321"]
    lapsed = database.queue("lapsed")
    assert [(claim.payload, claim.attempt) for claim in lapsed.pop_many(10)] == [(f"{n}", 2) for n in range(6)]
    work = database.queue("work")
    Claim.of(work, 2, held["work"]).complete()
    assert counts(work) == {"ready": 1, "dead": 1, "finished": 2}
    batched = database.queue("batched")
    (opened,) = batched.batches()
    batched.complete(claimed(batched))
    assert (opened.progress().finished, batched.batches()) == (2, [])
    batched.purge_history(0)
    refuses(BatchNotFound, database.batch, opened.id)
    mail = database.subscription("events/mail")
    mail.complete_many(Claim.of(mail, id, held["mail"]) for id in range(1, 8))
    mail.complete_many(Claim.of(mail, id, held["range"]) for id in (9, 10))
    got = []
    while batch := mail.pop_many(10):
        got += [claim.payload["n"] for claim in batch]
        mail.complete_many(batch)
    assert sorted(got) == [7, 10, 11]
    assert [finding for finding in database.doctor() if "index" in finding.cause] == []
    if kind.name == "postgresql":
        left = "select 1 from pg_class where relname ~ '__pack(s|ed)' and relnamespace = cast(%s as regnamespace)"
        assert sixth.execute(left, (sixth.schema,)) == []


def test_results_of_version_8_name_their_batches(seventh: Place, kind: Kind) -> None:
    database = seventh.open()
    assert database.upgrade() == {"batched": 7, "plain": 7}
    batched = database.queue("batched")
    (opened,) = batched.batches()
    assert (batched.result(1), opened.results()) == ({"n": 1}, {})
    batched.complete(Claim.of(batched, 2, HELD_7[kind.name]), result={"n": 2})
    assert opened.results() == {2: {"n": 2}}
    claimed(database.queue("plain")).complete()
    assert [finding for finding in database.doctor() if "index" in finding.cause] == []
