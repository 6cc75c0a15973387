"""Dead letters in another queue: they move in the transaction of the last failure, and come back by redrive."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import ALL, Backoff, Database, NewMessage, Queue
from tablequeue.errors import BadDefinition, BadInput, DuplicateKey, QueueDiffers
from tablequeue.ext import context_of
from tests.checks import check_dead_letters_move
from tests.servers import Place
from tests.support import at, claimed, counts, found, ids_of, refuses

pytestmark = [pytest.mark.quick, pytest.mark.variants("newer")]

UNREADABLE = "[1e400]"


@pytest.fixture
def failed(db: Database) -> Queue:
    return db.create_queue("failed")


@pytest.fixture
def work(db: Database, failed: Queue) -> Queue:
    return db.create_queue("work", dead_letter_to="failed", max_attempts=2, backoff=Backoff(base=0))


def test_a_dead_letter_moves_with_its_errors_and_its_origin(work: Queue, failed: Queue) -> None:
    id = work.push({"to": "ada"}, headers={"a": [1]}, key="k", now=at(0))
    assert claimed(work, now=at(1)).fail("one", now=at(2)) == "ready"
    assert claimed(work, now=at(3)).fail("two", now=at(4)) == "dead"
    assert counts(work) == {}
    assert work.find(id) is None
    claim = claimed(failed, now=at(5))
    origin = {"queue": "work", "table": "tq_work", "id": id, "attempts": 2, "key": "k"}
    assert (claim.payload, claim.headers) == ({"to": "ada"}, {"a": [1], "tablequeue-origin": origin})
    assert (claim.attempt, claim.key, claim.pushed_at) == (1, None, at(0))
    assert [(error.attempt, error.at, error.error) for error in found(failed, claim.id).errors] == [
        (1, at(2), "one"),
        (2, at(4), "two"),
    ]
    claim.complete(now=at(6))


def test_every_way_to_die(place: Place) -> None:
    check_dead_letters_move(place.open())


def test_a_batch_dies_and_is_moved(work: Queue, failed: Queue) -> None:
    """On SQL Server it is more than one statement changes."""
    work.push_many(range(1500), now=at(0))
    assert work.fail_many(work.pop_many(1500, now=at(0)), retry=False, now=at(0)) == ["dead"] * 1500
    assert counts(work) == {}
    assert [message.payload for message in failed.peek(2000)] == [*range(1500)]


def test_a_large_claim_that_expires_dies_and_is_moved(db: Database, failed: Queue) -> None:
    once = db.create_queue("once", dead_letter_to="failed", max_attempts=1)
    once.push_many(range(300), now=at(0))
    assert len(once.pop_many(300, lease=5, now=at(0))) == 300
    assert once.pop(now=at(10)) is None
    assert (counts(once), counts(failed)) == ({}, {"ready": 300})
    assert {message.errors[-1].error for message in failed.peek(300)} == {"lease expired"}


def test_a_rollback_leaves_the_message_in_progress(db: Database, work: Queue, failed: Queue) -> None:
    work.push(1)
    claim = claimed(work)
    with db.engine.connect() as connection, connection.begin() as transaction:
        assert claim.fail("no", retry=False, connection=connection) == "dead"
        transaction.rollback()
    assert (counts(work), counts(failed)) == ({"in_progress": 1}, {})
    with db.engine.begin() as connection:
        claim.fail("no", retry=False, connection=connection)
    assert (counts(work), counts(failed)) == ({}, {"ready": 1})


def test_what_cannot_be_read_moves_too(db: Database, work: Queue, failed: Queue) -> None:
    for _ in range(2):
        work.push(1)
    name = context_of(work).table.engine.words(context_of(work).table)["queue"]
    with db.engine.begin() as connection:
        connection.execute(sa.text(f"update {name} set payload = '{UNREADABLE}'"))  # noqa: S608
    with db.engine.begin() as connection:
        assert work.take(connection) is None
    assert work.pop() is None
    assert (counts(work), counts(failed)) == ({}, {"ready": 2})


def test_keys_in_the_other_queue_are_no_conflict(work: Queue, failed: Queue) -> None:
    failed.push("theirs", key="k")
    for number in range(3):
        work.push(number, key="k")  # the key is free again
        assert claimed(work).fail(retry=False) == "dead"
    assert counts(failed) == {"ready": 4}
    assert work.redrive(ALL) == 1
    (back,) = work.peek()
    assert (back.payload, back.key) == (0, "k")
    refuses(DuplicateKey, work.push, 4, key="k")
    assert work.redrive(ALL) == 0
    claimed(work).complete()
    assert work.redrive(ALL) == 1
    assert counts(failed) == {"ready": 2}


@pytest.mark.parametrize("side", ["work", "failed"])
def test_redrive_moves_them_back(work: Queue, failed: Queue, side: str) -> None:
    own = failed.push("own")
    for number in range(5):
        work.push(number, headers={"n": number})
        claimed(work).fail("no", retry=False)
    held = [claimed(failed, lease=600) for _ in range(2)]
    assert held[0].id == own
    queue = {"work": work, "failed": failed}[side]
    assert queue.redrive(ALL) == 4
    assert (counts(work), counts(failed)) == ({"ready": 4}, {"in_progress": 2})
    back = work.pop_many(10)
    assert [(claim.payload, claim.attempt) for claim in back] == [(number, 1) for number in range(1, 5)]
    assert [error.error for error in found(work, back[0].id).errors] == ["no"]


def test_redrive_of_some(work: Queue, failed: Queue) -> None:
    ids = work.push_many(range(6))
    work.fail_many(work.pop_many(6), retry=False)
    assert work.redrive([ids[1]]) == 1
    assert work.redrive(lambda message: message.payload == 2) == 1
    assert failed.redrive([failed.peek()[-1].id]) == 1
    assert failed.redrive(lambda message: message.payload == 4) == 1
    assert [claim.payload for claim in work.pop_many(10)] == [1, 2, 5, 4]
    assert [claim.payload for claim in failed.pop_many(10)] == [0, 3]


def test_a_dead_letter_of_the_other_queue_stays_there_and_comes_back(work: Queue, failed: Queue) -> None:
    work.push(1)
    claimed(work).fail("no", retry=False)
    failed.push(2)
    assert [claim.fail("never", retry=False) for claim in failed.pop_many(2)] == ["dead", "dead"]
    assert len(failed.dead()) == 2
    assert failed.redrive(ALL) == 2
    assert ([message.payload for message in work.peek()], [message.payload for message in failed.peek()]) == ([1], [2])
    assert [error.error for error in work.peek()[0].errors] == ["no", "never"]


def test_a_forged_origin_is_not_believed(db: Database, work: Queue, failed: Queue) -> None:
    other = db.create_queue("other")
    for header in ({"queue": "other", "id": 1, "key": None}, {"queue": "work"}, "work", {"queue": "work", "id": "1"}):
        failed.push(1, headers={"tablequeue-origin": header})
    assert failed.redrive(ALL) == 0
    assert (counts(other), counts(work), counts(failed)) == ({}, {}, {"ready": 4})


@pytest.mark.parametrize("design", [{"groups": True}, {"strict": True}, {"order": "due"}, {"order": "priority"}])
def test_designs(db: Database, failed: Queue, design: dict[str, Any]) -> None:
    work = db.create_queue("work", dead_letter_to="failed", **design)
    group = "g" if "groups" in design else None
    work.push_many([NewMessage(1, group=group), NewMessage(2, group=group)])
    assert claimed(work).fail("no", retry=False) == "dead"
    second = claimed(work)
    assert second.payload == 2
    assert work.redrive(ALL) == 1
    second.complete()
    again = claimed(work)
    assert (again.payload, again.group) == (1, group)


@pytest.mark.parametrize("design", [{"groups": True}, {"strict": True}])
def test_those_that_are_blocked_in_their_queue_come_back_in_order(db: Database, design: dict[str, Any]) -> None:
    failed = db.create_queue("failed", **design)
    work = db.create_queue("work", dead_letter_to="failed", **design)
    group = "g" if "groups" in design else None
    work.push_many([NewMessage(number, group=group) for number in range(4)], now=at(0))
    for _ in range(4):
        claimed(work, now=at(0)).fail(retry=False, now=at(0))
    claimed(failed, now=at(1)).fail(retry_in=60, now=at(1))
    assert failed.stats(now=at(2)).blocked == 3
    assert work.redrive(ALL, now=at(2)) == 4
    assert counts(failed) == {}
    assert [claim.payload for claim in work.pop_many(4, same_group=True, now=at(3))] == [0, 1, 2, 3]


def test_a_queue_with_this_order_takes_them(db: Database) -> None:
    target = db.create_queue("failed", order="due")
    work = db.create_queue("work", dead_letter_to="failed")
    work.push(1)
    claimed(work).fail(retry=False)
    assert claimed(target).payload == 1


def test_it_is_refused_where_it_cannot_work(db: Database, work: Queue, failed: Queue) -> None:
    db.create_topic("events")
    db.create_queue("texts", payload="text")
    db.create_queue("strict", strict=True)
    for target in ("missing", "events", "texts", "strict", "more"):
        error = refuses(BadDefinition, db.create_queue, "more", dead_letter_to=target)
        assert "more" not in db.queues()
        assert repr(target) in error.cause
    for options in ({"delivery": "at_most_once"}, {"dead_letter_to": ""}, {"dead_letter_to": 1}):
        refuses(BadDefinition, db.create_queue, "more", **{"dead_letter_to": "failed"} | options)
    refuses(QueueDiffers, db.create_queue, "failed", dead_letter_to="texts")
    assert db.create_queue("work", dead_letter_to="failed", max_attempts=2, backoff=Backoff(base=0)).name == "work"


def test_their_queue_may_send_its_own_to_a_third(db: Database, work: Queue, failed: Queue) -> None:
    first = db.create_queue("first", dead_letter_to="work", max_attempts=1)
    first.push("x")
    claimed(first).fail()
    for _ in range(2):
        claimed(work).fail(retry_in=0)
    assert [message.payload for message in failed.peek()] == ["x"]


def test_their_queue_is_not_dropped(work: Queue, failed: Queue) -> None:
    error = refuses(BadInput, failed.drop)
    assert "'work'" in error.cause
    failed.push(1)
    work.drop()
    failed.drop()


def test_another_process_finds_the_queue(place: Place, work: Queue, failed: Queue) -> None:
    work.push(1)
    theirs = place.open().queue("work")
    assert theirs.definition == work.definition
    claimed(theirs).fail(retry=False)
    assert ids_of(failed.peek()) == [claimed(failed).id]


@pytest.fixture(params=["groups", "strict"])
def in_order(db: Database, request: pytest.FixtureRequest) -> tuple[Queue, Queue]:
    """A queue that hands out one message of a group at a time, and a queue of that kind for its dead letters."""
    design: dict[str, Any] = {str(request.param): True}
    failed = db.create_queue("failed", order="fifo", **design)
    return db.create_queue("work", order="fifo", dead_letter_to="failed", max_attempts=1, **design), failed


def test_dead_letters_in_order_are_handed_out_one_after_the_other(in_order: tuple[Queue, Queue]) -> None:
    work, failed = in_order
    group = "a" if work.definition.groups else None
    for number in range(3):
        work.push(number, group=group)
        claimed(work).fail("no")
    for number in range(3):
        claim = claimed(failed)
        assert claim.payload == number
        assert failed.pop() is None
        claim.complete()


@pytest.mark.parametrize("side", ["work", "failed"])
def test_a_redrive_of_the_head_leaves_the_next_one_of_its_group_ready(in_order: tuple[Queue, Queue], side: str) -> None:
    work, failed = in_order
    group = "a" if work.definition.groups else None
    for number in range(3):
        work.push(number, group=group)
        claimed(work).fail("no")
    queue = work if side == "work" else failed
    assert queue.redrive(lambda message: message.payload == 0) == 1
    assert claimed(work).payload == 0
    for number in (1, 2):
        claim = claimed(failed)
        assert claim.payload == number
        claim.complete()
