"""complete, complete_many, fail, release, extend: under a held claim, and under a lost one."""

from __future__ import annotations

from typing import Any

import pytest

from tablequeue import Backoff, Database, LeaseLost, Queue
from tablequeue.errors import BadInput
from tests.servers import Place
from tests.support import at, check_fenced, claimed, counts, found, ids_of, refuses, snapshot

pytestmark = [pytest.mark.quick, pytest.mark.needs("plain_push"), pytest.mark.variants("procedures")]


def test_complete(queue: Queue) -> None:
    queue.push("x")
    claim = claimed(queue)
    claim.complete()
    assert counts(queue) == {"finished": 1}
    check_fenced(queue, claim)


@pytest.mark.needs("many_in_progress")
def test_complete_many_leaves_the_lost_alone_and_finishes_the_others(queue: Queue) -> None:
    ids = queue.push_many([*"abcdef"])
    batch = queue.pop_many(6)
    by_id = {claim.id: claim for claim in batch}
    by_id[ids[1]].complete()
    by_id[ids[4]].release()
    error = refuses(LeaseLost, queue.complete_many, batch)
    assert error.ids == (ids[1], ids[4])
    assert "2 of 6" in error.cause
    assert sorted(ids_of(queue.history())) == [ids[0], ids[1], ids[2], ids[3], ids[5]]
    assert ids_of(queue.peek()) == [ids[4]]


@pytest.mark.needs("many_in_progress")
def test_complete_many_of_several_batches(queue: Queue) -> None:
    queue.push_many(map(str, range(30)))
    claims = queue.pop_many(10) + queue.pop_many(1) + queue.pop_many(19)
    queue.complete_many(claim for claim in reversed(claims))
    assert counts(queue) == {"finished": 30}


def test_complete_many_of_nothing_and_of_one_twice(queue: Queue) -> None:
    queue.complete_many([])
    queue.release_many([])
    queue.push("x")
    claim = claimed(queue)
    queue.complete_many([claim, claim])
    assert counts(queue) == {"finished": 1}


@pytest.mark.needs("many_in_progress")
@pytest.mark.parametrize("size", [1, 1500])
def test_a_queue_without_history(db: Database, options: dict[str, Any], size: int) -> None:
    queue = db.create_queue("work", **options | {"history": "none"})
    queue.push_many(map(str, range(size)))
    batch = queue.pop_many(size)
    queue.complete_many(batch)
    assert queue.stats().finished is None
    assert snapshot(queue) == []
    refuses(BadInput, queue.history)
    check_fenced(queue, batch[0])
    queue.drop()


def test_fail_waits_for_the_backoff(queue: Queue) -> None:
    id = queue.push("x", now=at(0))
    assert claimed(queue, now=at(0)).fail("one", now=at(1)) == "scheduled"
    assert found(queue, id).due_at == at(11)
    assert queue.pop(now=at(10.999999)) is None
    assert claimed(queue, now=at(11)).fail("two", now=at(12)) == "scheduled"
    assert found(queue, id).due_at == at(32)
    assert claimed(queue, now=at(32)).fail("three", now=at(33)) == "dead"
    assert queue.pop(now=at(10_000)) is None
    (letter,) = queue.dead()
    assert [(error.attempt, error.at, error.error) for error in letter.errors] == [
        (1, at(1), "one"),
        (2, at(12), "two"),
        (3, at(33), "three"),
    ]
    assert (letter.id, letter.attempts, letter.state) == (id, 3, "dead")


def test_fail_and_retry_when_you_say(queue: Queue) -> None:
    id = queue.push("x", now=at(0))
    assert claimed(queue, now=at(0)).fail(retry_in=0, now=at(0)) == "ready"
    assert claimed(queue, now=at(0)).fail(retry_in=300, now=at(0)) == "scheduled"
    assert found(queue, id).due_at == at(300)
    assert claimed(queue, now=at(300)).fail(retry_in=0, now=at(300)) == "dead"


def test_an_exception_is_kept_with_its_traceback_and_its_cause(place: Place, queue: Queue) -> None:
    def work() -> None:
        try:
            raise KeyError("the cause")
        except KeyError as error:
            raise ValueError("the effect") from error

    id = queue.push("x")
    claim = claimed(place.open("carol").queue("work"))
    try:
        work()
    except ValueError as error:
        claim.fail(error)
    (kept,) = found(queue, id).errors
    assert kept.consumer == "carol"
    for words in ("KeyError: 'the cause'", "ValueError: the effect", "in work"):
        assert words in kept.error


def test_a_refused_fail_changes_nothing(queue: Queue) -> None:
    queue.push("x")
    claim = claimed(queue)
    before = snapshot(queue)
    bad: list[dict[str, Any]] = [{"retry_in": -1}, {"retry_in": "x"}, {"error": 1}, {"error": b"x"}]
    for options in bad:
        refuses(BadInput, claim.fail, **options)
        assert snapshot(queue) == before, options
    claim.complete()


def test_a_released_attempt_does_not_count(queue: Queue) -> None:
    id = queue.push("x", now=at(0))
    for _ in range(5):
        claimed(queue, now=at(0)).release(now=at(0))
    message = found(queue, id)
    assert (message.state, message.attempts, message.errors) == ("ready", 0, ())
    claim = claimed(queue, now=at(0))
    assert claim.attempt == 1
    claim.release(delay=30, now=at(0))
    check_fenced(queue, claim)
    assert queue.pop(now=at(29)) is None
    assert claimed(queue, now=at(30)).attempt == 1


@pytest.mark.needs("many_in_progress")
def test_release_many(queue: Queue) -> None:
    ids = queue.push_many([*"abc"])
    batch = queue.pop_many(3)
    batch[0].complete()
    error = refuses(LeaseLost, queue.release_many, batch)
    assert error.ids == (batch[0].id,)
    assert ids_of(queue.peek()) == [id for id in ids if id != batch[0].id]


def test_extend(queue: Queue) -> None:
    id = queue.push("x", now=at(0))
    claim = claimed(queue, lease=10, now=at(0))
    assert claim.extend(100, now=at(5)) == at(105)
    assert found(queue, id).lease_until == at(105)
    assert queue.pop(now=at(104.9)) is None
    assert claim.extend(now=at(20)) == at(20 + queue.definition.lease)
    assert queue.pop(now=at(79.9)) is None
    claim.complete(now=at(79.9))


def test_the_jitter_only_shortens_the_wait() -> None:
    backoff = Backoff(base=10, factor=2, cap=60, jitter=0.5)
    for attempts, longest in {1: 10, 2: 20, 3: 40, 4: 60, 5: 60, 10_000: 60}.items():
        waits = [backoff.seconds(attempts) for _ in range(100)]
        assert all(longest / 2 <= wait <= longest for wait in waits)
        assert len(set(waits)) > 1


def test_a_claim_is_not_valid_in_another_queue(db: Database, queue: Queue) -> None:
    other = db.create_queue("other")
    queue.push("x")
    other.push(1)
    theirs = claimed(other)
    claimed(queue)
    before = snapshot(queue)
    refuses(LeaseLost, queue.complete, theirs)
    assert snapshot(queue) == before
