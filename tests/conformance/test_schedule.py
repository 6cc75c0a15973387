"""The time at which a message becomes ready: delay, due, back-off, retry_in, and releases with a delay."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from tablequeue import Backoff, Database, Queue
from tablequeue.errors import BadInput
from tests.support import at, claimed, counts, design_group, found, ids_of, refuses

pytestmark = pytest.mark.quick


def push(queue: Queue, payload: str = "x", **options: Any) -> int:
    return queue.push(payload, **design_group(queue, "a"), **options)


@pytest.mark.parametrize("option", [{"delay": 10}, {"delay": timedelta(seconds=10)}, {"due": at(10)}], ids=str)
def test_a_scheduled_message_is_not_to_be_had_before(queue: Queue, option: dict[str, Any]) -> None:
    id = push(queue, now=at(0), **option)
    assert found(queue, id).due_at == at(10)
    assert counts(queue) == {"scheduled": 1}
    assert queue.pop(now=at(9.999999)) is None
    claim = claimed(queue, now=at(10))
    assert (claim.id, claim.due_at, claim.attempt) == (id, at(10), 1)


@pytest.mark.parametrize("option", [{"delay": 0}, {"due": at(-100)}, {"due": at(0)}, {"delay": timedelta()}], ids=str)
def test_what_is_due_already_is_to_be_had_at_once(queue: Queue, option: dict[str, Any]) -> None:
    id = push(queue, now=at(0), **option)
    assert claimed(queue, now=at(0)).id == id


def test_the_databases_own_clock(queue: Queue) -> None:
    """Without `now=`. The clocks of this machine and the server may differ a little, but not by an hour."""
    before = datetime.now(UTC)
    id = push(queue, delay=3600)
    message = found(queue, id)
    assert message.due_at is not None
    assert message.due_at - message.pushed_at == timedelta(seconds=3600)
    assert abs(message.pushed_at - before) < timedelta(minutes=30)
    assert queue.pop() is None


def test_a_lease_ends_by_the_databases_own_clock(queue: Queue) -> None:
    push(queue)
    claim = claimed(queue, lease=90)
    assert claim.lease_until is not None
    assert claim.lease_until - claim.popped_at == timedelta(seconds=90)
    assert timedelta(0) <= claim.popped_at - claim.pushed_at < timedelta(minutes=30)


def test_microseconds_are_kept(queue: Queue) -> None:
    id = push(queue, delay=0.000001, now=at(0.123456))
    message = found(queue, id)
    assert (message.pushed_at, message.due_at) == (at(0.123456), at(0.123457))
    assert queue.pop(now=at(0.123456)) is None
    assert claimed(queue, now=at(0.123457)).id == id


@pytest.mark.needs("many_in_progress")
def test_a_large_backlog_becomes_due(queue: Queue) -> None:
    """One sweep does not make all of them ready: claims continue until none is left."""
    ids = queue.push_many(["x"] * 1500, delay=10, now=at(0))
    assert queue.pop(now=at(9)) is None
    popped: list[int] = []
    while claims := queue.pop_many(400, now=at(10)):
        popped += ids_of(claims)
    assert sorted(popped) == ids


def test_the_backoff_grows_up_to_its_cap(db: Database) -> None:
    backoff = Backoff(base=3, factor=2, cap=20, jitter=0)
    queue = db.create_queue("work", max_attempts=6, backoff=backoff)
    id = queue.push(1, now=at(0))
    time, waits = 0.0, []
    for _ in range(5):
        assert claimed(queue, now=at(time)).fail("no", now=at(time)) == "scheduled"
        due = found(queue, id).due_at
        assert due is not None
        waits.append((due - at(time)).total_seconds())
        time += waits[-1]
        assert queue.pop(now=at(time - 0.000001)) is None
    assert waits == [3, 6, 12, 20, 20]
    assert claimed(queue, now=at(time)).fail("no", now=at(time)) == "dead"


def test_jitter_only_shortens_the_wait(db: Database) -> None:
    queue = db.create_queue("work", backoff=Backoff(base=100, jitter=0.5))
    ids = queue.push_many(range(50), now=at(0))
    for claim in queue.pop_many(50, now=at(0)):
        claim.fail("no", now=at(0))
    dues = [found(queue, id).due_at for id in ids]
    assert all(due is not None and at(50) <= due <= at(100) for due in dues)
    assert len(set(dues)) > 1


@pytest.mark.parametrize("base", [0, 0.5, 10])
def test_a_backoff_never_falls(base: float) -> None:
    backoff = Backoff(base=base, factor=1.5, cap=60, jitter=0)
    waits = [backoff.seconds(attempts) for attempts in (1, 2, 3, 10, 100, 1_000_000)]
    assert all(wait <= longer for wait, longer in pairwise(waits))
    assert waits[-1] == (60 if base else 0)


def test_a_backoff_of_nothing_is_ready_at_once(db: Database) -> None:
    queue = db.create_queue("work", backoff=Backoff(base=0))
    queue.push(1)
    assert claimed(queue).fail("no") == "ready"
    assert counts(queue) == {"ready": 1}


def test_retry_in_overrules_the_backoff(queue: Queue) -> None:
    id = push(queue, now=at(0))
    assert claimed(queue, now=at(0)).fail("no", retry_in=500, now=at(0)) == "scheduled"
    assert found(queue, id).due_at == at(500)
    assert queue.pop(now=at(499)) is None
    assert claimed(queue, now=at(500)).fail("no", retry_in=0, now=at(500)) == "ready"
    assert claimed(queue, now=at(500)).attempt == 3


def test_a_release_with_a_delay(queue: Queue) -> None:
    id = push(queue, now=at(0))
    claimed(queue, now=at(0)).release(delay=30, now=at(0))
    message = found(queue, id)
    assert (message.state, message.due_at, message.attempts) == ("scheduled", at(30), 0)
    assert queue.pop(now=at(29)) is None
    assert claimed(queue, now=at(30)).attempt == 1


@pytest.mark.needs("many_in_progress")
def test_release_many_with_a_delay(queue: Queue) -> None:
    ids = queue.push_many([*"abc"], now=at(0))
    queue.release_many(queue.pop_many(3, now=at(0)), delay=30, now=at(0))
    assert queue.pop(now=at(29)) is None
    assert sorted(ids_of(queue.pop_many(10, now=at(30)))) == ids


@pytest.mark.parametrize("design", ["fifo"])
@pytest.mark.parametrize("wrong", [-1, "1", float("nan"), float("inf"), 4e9, True, timedelta(seconds=-1)], ids=repr)
def test_durations_that_cannot_be(queue: Queue, wrong: Any) -> None:
    push(queue)
    claim = claimed(queue)
    before = found(queue, claim.id)
    refuses(BadInput, push, queue, delay=wrong)
    refuses(BadInput, claim.release, delay=wrong)
    refuses(BadInput, claim.fail, retry_in=wrong)
    refuses(BadInput, claim.extend, wrong)
    refuses(BadInput, queue.pop, lease=wrong)
    assert found(queue, claim.id) == before
    assert counts(queue) == {"in_progress": 1}
