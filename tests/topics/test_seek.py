"""Where a subscription begins, and how it goes back and forward in its topic."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from tablequeue import ALL, Database
from tablequeue.errors import BadInput, Locked, QueueNotFound, SeekRefused
from tablequeue.ext import context_of
from tablequeue.topic import Subscription, Topic
from tests.servers import Place
from tests.support import at, check_fenced, claimed, counts, ids_of, refuses
from tests.topics import checks

pytestmark = pytest.mark.quick


@pytest.fixture
def ids(topic: Topic) -> list[int]:
    """Six messages, pushed ten seconds apart."""
    return [topic.push(f"m{n}", now=at(10 * n)) for n in range(6)]


STARTS: list[tuple[Any, int]] = [
    ("beginning", 0),
    ("end", 6),
    (at(-5), 0),
    (at(0), 0),
    (at(0.000001), 1),
    (at(20), 2),
    (at(25), 3),
    (at(50), 5),
    (at(51), 6),
]


@pytest.mark.parametrize(("start", "first"), STARTS, ids=lambda value: str(value))
def test_a_start(topic: Topic, ids: list[int], start: Any, first: int) -> None:
    mail = topic.subscribe("mail", start=start)
    assert mail.lag().messages == 6 - first
    last = topic.push("x", now=at(100))
    assert ids_of(mail.pop_many(10)) == [*ids[first:], last]


@pytest.mark.parametrize("start", ["beginning", "end", at(0)])
def test_a_start_in_an_empty_topic(topic: Topic, start: Any) -> None:
    mail = topic.subscribe("mail", start=start)
    assert mail.pop() is None
    id = topic.push("x")
    assert claimed(mail).id == id


@pytest.mark.parametrize(("to", "first"), STARTS, ids=lambda value: str(value))
def test_back_and_forward(
    topic: Topic, mail: Subscription, log: Subscription, ids: list[int], to: Any, first: int
) -> None:
    """Forward from the beginning, and back from the end; no other subscription moves."""
    mail.seek(to)
    assert ids_of(mail.pop_many(10)) == ids[first:]
    log.complete_many(log.pop_many(10))
    log.seek(to)
    assert log.lag().messages == 6 - first
    assert ids_of(log.pop_many(10)) == ids[first:]


@pytest.mark.parametrize("to", ["middle", None, 5, datetime(2040, 1, 1)])
def test_a_wrong_place_is_refused(topic: Topic, mail: Subscription, to: Any) -> None:
    refuses(BadInput, mail.seek, to)
    refuses(BadInput, topic.subscribe, "new", start=to)
    assert topic.subscriptions() == ["mail"]


def test_while_messages_are_in_progress(topic: Topic, mail: Subscription, ids: list[int]) -> None:
    """In a range, or apart."""
    batch = mail.pop_many(2)
    assert "2 messages" in refuses(SeekRefused, mail.seek, "beginning").cause
    batch[0].complete()
    batch[1].fail("no", retry_in=0)
    apart = claimed(mail)
    refuses(SeekRefused, mail.seek, "end")
    assert claimed(mail).id == ids[2], "nothing moved"
    mail.seek("end", force=True)
    assert mail.pop() is None
    apart.complete()


def test_a_forced_seek_ends_the_leases_from_there_on(topic: Topic, mail: Subscription, ids: list[int]) -> None:
    """Those of the ranges that reach the place, and those of detached messages. Others go on."""
    first, apart = mail.pop_many(2), mail.pop_many(2)
    for claim in apart:
        claim.release()
    apart = mail.pop_many(2)
    rest = mail.pop_many(2)
    mail.seek(at(30), force=True)
    check_fenced(mail, apart[1])
    assert checks.not_held(mail, rest) == ids[4:]
    mail.complete_many([*first, apart[0]])
    again = mail.pop_many(10)
    assert [(claim.id, claim.attempt) for claim in again] == [(id, 1) for id in ids[3:]]
    mail.complete_many(again)
    assert counts(mail) == {"finished": 6}


def test_a_range_that_a_forced_seek_cuts_is_retried_before_the_place(
    topic: Topic, mail: Subscription, ids: list[int]
) -> None:
    old = mail.pop_many(6)
    mail.seek(at(20), force=True)
    assert checks.not_held(mail, old) == ids
    assert [(claim.id, claim.attempt) for claim in mail.pop_many(10)] == [(id, 2) for id in ids[:2]]
    assert [(claim.id, claim.attempt) for claim in mail.pop_many(10)] == [(id, 1) for id in ids[2:]]


def test_a_forced_seek_finds_what_is_in_a_pack(topic: Topic, mail: Subscription) -> None:
    """A large claim of detached messages is one row on PostgreSQL."""
    ids = topic.push_many(["x"] * 300)
    mail.fail_many(mail.pop_many(300), "no", retry_in=0)
    apart = mail.pop_many(300)
    assert ids_of(apart) == ids
    mail.seek("beginning", force=True)
    again = mail.pop_many(300)
    assert ids_of(again) == ids
    assert checks.not_held(mail, apart) == ids
    mail.complete_many(again)
    assert counts(mail) == {"finished": 300}


@pytest.mark.parametrize("ordered", [False, True], ids=["plain", "ordered"])
def test_one_rule_for_what_is_apart(db: Database, ordered: bool) -> None:
    topic = db.create_topic("events", payload="text", groups=True)
    mail = topic.subscribe("mail", ordered=ordered)
    checks.check_a_seek_decides_about_every_message(topic, mail)


def test_a_seek_skips_what_was_moved_to_the_queue(ordered: Subscription, db: Database) -> None:
    checks.check_a_seek_skips_what_was_moved_to_the_queue(db.topic("orders"), ordered)


def test_a_seek_leaves_one_of_each_message(topic: Topic, mail: Subscription) -> None:
    checks.check_a_seek_leaves_one_of_each_message(topic, mail)


def test_no_failure_takes_the_lease_of_another_consumer(topic: Topic, mail: Subscription) -> None:
    checks.check_no_failure_takes_the_lease_of_another_consumer(topic, mail)


def test_no_expiry_takes_the_lease_of_another_consumer(topic: Topic, mail: Subscription) -> None:
    checks.check_no_expiry_takes_the_lease_of_another_consumer(topic, mail)


def test_a_seek_beside_a_transaction_that_changes_a_message(
    place: Place, db: Database, topic: Topic, mail: Subscription, ids: list[int]
) -> None:
    """It is refused, and waits for nobody."""
    if db.engine.dialect.name == "sqlite":
        pytest.skip("one transaction writes at a time")
    mail.fail_many(mail.pop_many(6), "no", retry=False)
    with place.sa_engine().connect() as connection:
        queue = context_of(mail).engine.words(context_of(mail).table)["queue"]
        connection.exec_driver_sql(f"update {queue} set headers = null where id = {ids[3]}")  # noqa: S608
        for force in (False, True):
            refuses(Locked, mail.seek, "beginning", force=force)
        connection.commit()
    assert mail.pop() is None, "nothing moved"
    assert len(mail.dead()) == 6
    mail.seek("beginning")
    assert ids_of(mail.pop_many(6)) == ids


def test_dead_letters_and_what_waits_for_a_retry_stay(topic: Topic, mail: Subscription, ids: list[int]) -> None:
    batch = mail.pop_many(6, now=at(100))
    batch[1].fail("dead", retry=False, now=at(100))
    batch[2].fail("later", retry_in=50, now=at(100))
    mail.complete_many([batch[0], *batch[3:]], now=at(100))
    mail.seek("end")
    assert counts(mail) == {"dead": 1, "scheduled": 1, "finished": 4}
    assert claimed(mail, now=at(150)).id == ids[2]


def test_a_replay_of_what_is_a_dead_letter_or_in_the_history(topic: Topic, mail: Subscription, ids: list[int]) -> None:
    """The outcome of the replay is the one that counts, and nothing is refused for the rows that are there."""
    first = mail.pop_many(6, now=at(100))
    for claim in first[:3]:
        claim.fail("no", retry_in=0, now=at(100))
    retried = mail.pop_many(3, now=at(101))
    retried[0].complete(now=at(101))
    retried[1].fail("dead", retry=False, now=at(101))
    retried[2].fail("later", retry_in=1000, now=at(101))
    mail.complete_many(first[3:], now=at(101))
    mail.seek("beginning")
    again = mail.pop_many(6, lease=10, now=at(102))
    assert [(claim.id, claim.attempt) for claim in again] == [(id, 1) for id in ids]
    again[0].fail("again", retry=False, now=at(103))
    again[1].fail("again", retry_in=0, now=at(103))
    again[3].release(now=at(103))
    letters = {letter.id: letter for letter in mail.dead()}
    assert letters.keys() == {ids[0]}
    assert letters[ids[0]].errors[-1].error == "again"
    rest = mail.pop_many(10, now=at(120))
    assert sorted(ids_of(rest)) == ids[1:], "the lease of the others was over"
    assert {claim.id: claim.attempt for claim in rest}[ids[3]] == 1
    mail.complete_many(rest, now=at(120))
    assert ids_of(mail.history())[::-1] == ids[1:]
    assert {state: counts(mail).get(state, 0) for state in ("ready", "scheduled", "in_progress", "dead")} == {
        "ready": 0,
        "scheduled": 0,
        "in_progress": 0,
        "dead": 1,
    }


def test_a_replay_takes_dead_letters_back(topic: Topic, mail: Subscription, ids: list[int]) -> None:
    for claim in mail.pop_many(6):
        claim.fail("no", retry=False)
    mail.seek(at(20))
    assert ids_of(mail.dead()) == ids[:2]
    mail.complete_many(mail.pop_many(6))
    assert counts(mail) == {"dead": 2, "finished": 4}
    assert mail.redrive(ALL) == 2
    mail.complete_many(mail.pop_many(6))
    assert counts(mail) == {"finished": 6}


def test_a_claim_from_before_the_seek_is_fenced(topic: Topic, mail: Subscription, ids: list[int]) -> None:
    batch = mail.pop_many(6)
    mail.complete_many(batch)
    mail.seek("beginning")
    again = mail.pop_many(6)
    refuses(Exception, mail.complete_many, batch)
    assert counts(mail) == {"finished": 6, "in_progress": 6}
    mail.complete_many(again)


def test_an_ordered_subscription(db: Database, ordered: Subscription) -> None:
    topic = db.topic("orders")
    ids = [topic.push("x", group="g", now=at(n)) for n in range(3)]
    for id in ids:
        claim = claimed(ordered)
        assert claim.id == id
        claim.complete()
    ordered.seek(at(1))
    for id in ids[1:]:
        claim = claimed(ordered)
        assert claim.id == id
        refuses(SeekRefused, ordered.seek, "end")
        claim.complete()
    assert ordered.pop() is None
    assert sorted(ids_of(ordered.history())) == ids
    ordered.seek("beginning")
    assert claimed(ordered).id == ids[0]


def test_after_a_drop(place: Place, topic: Topic, mail: Subscription) -> None:
    topic.push("x")
    claim = claimed(mail)
    place.open().topic("events").drop()
    refuses(QueueNotFound, mail.seek, "end")
    refuses(QueueNotFound, claim.fail, "no")
    refuses(QueueNotFound, claim.complete)
    refuses(QueueNotFound, mail.pop)
    refuses(QueueNotFound, topic.push, "x")
    refuses(QueueNotFound, topic.subscribe, "mail")
