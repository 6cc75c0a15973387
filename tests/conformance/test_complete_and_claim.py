"""pop and pop_many with `completing`: one call completes the previous messages and claims the next ones."""

from __future__ import annotations

from typing import Any

import pytest

from tablequeue import Claim, Database, LeaseLost, Queue
from tablequeue.errors import BadInput
from tablequeue.ext import context_of
from tests.callers import Caller
from tests.checks import check_nothing_is_claimed_after_a_lost_lease
from tests.servers import Kind, Place
from tests.support import at, at_once, check_fenced, claimed, counts, design_group, ids_of, refuses, snapshot

pytestmark = [pytest.mark.quick, pytest.mark.designs("claims")]


@pytest.fixture
def queue(db: Database, options: dict[str, Any]) -> Queue:
    return at_once(db.create_queue("work", **options))


def chain(queue: Queue) -> list[int]:
    """Pop all ready messages one by one, each with the completion of the one before."""
    ids: list[int] = []
    message: Claim | None = queue.pop()
    while message is not None:
        ids.append(message.id)
        message = queue.pop(completing=message)
    return ids


@pytest.mark.designs("order")
def test_a_chain_has_the_order_of_the_queue(queue: Queue) -> None:
    pushed = queue.push_many([*"abcde"], **design_group(queue, "g"))
    chained = chain(queue)
    if queue.definition.order == "heap":
        chained.sort()
    assert chained == (pushed[::-1] if queue.definition.order == "lifo" else pushed)
    assert counts(queue) == {"finished": 5}


def test_in_a_history_it_is_a_completion(queue: Queue) -> None:
    queue.push("a", headers={"n": 1}, **design_group(queue, "g"))
    first = claimed(queue)
    queue.push("b", **design_group(queue, "g"))
    second = claimed(queue, completing=first, lease=1000)
    (finished,) = queue.history()
    assert (finished.id, finished.payload, finished.headers, finished.attempts) == (first.id, "a", {"n": 1}, 1)
    assert finished.first_popped_at == finished.popped_at
    assert finished.finished_at
    assert second.popped_at >= finished.finished_at
    assert (second.payload, second.attempt, second.group) == ("b", 1, first.group)
    check_fenced(queue, first)
    second.complete()
    assert counts(queue) == {"finished": 2}


@pytest.mark.needs("many_in_progress")
def test_the_next_message_has_its_errors(queue: Queue) -> None:
    queue.push("a")
    first = claimed(queue)
    queue.push("b")
    claimed(queue).fail("no", retry_in=0)
    assert [error.error for error in claimed(queue, completing=first).errors] == ["no"]


def test_with_nothing_ready_it_is_completed_all_the_same(queue: Queue) -> None:
    queue.push("a", **design_group(queue, "g"))
    assert queue.pop(completing=claimed(queue)) is None
    assert queue.pop_many(3, completing=[]) == []
    assert counts(queue) == {"finished": 1}


@pytest.mark.needs("many_in_progress")
def test_batches(queue: Queue) -> None:
    ids = queue.push_many(map(str, range(250)))
    batch, got = queue.pop_many(100), []
    while batch:
        got += ids_of(batch)
        batch = queue.pop_many(100, completing=iter(batch))
    assert sorted(got) == ids
    assert counts(queue) == {"finished": 250}


@pytest.mark.needs("many_in_progress")
def test_a_batch_of_several_pops_and_one_twice(queue: Queue) -> None:
    queue.push_many([*"abcdef"])
    several = [*queue.pop_many(2), *queue.pop_many(2)]
    assert len(queue.pop_many(2, completing=several)) == 2
    (last, other) = queue.peek(state="in_progress")
    assert last.id != other.id
    assert counts(queue) == {"finished": 4, "in_progress": 2}
    queue.push("g")
    again = claimed(queue)
    assert queue.pop_many(1, completing=[again, again]) == []
    assert counts(queue) == {"finished": 5, "in_progress": 2}


@pytest.mark.needs("plain_push")
def test_after_a_lost_lease_nothing_is_claimed(queue: Queue) -> None:
    check_nothing_is_claimed_after_a_lost_lease(queue)


@pytest.mark.needs("many_in_progress")
def test_the_others_of_a_batch_are_done(queue: Queue) -> None:
    queue.push_many([*"abcde"])
    batch = queue.pop_many(3)
    batch[1].complete()
    error = refuses(LeaseLost, queue.pop_many, 2, completing=batch)
    assert error.ids == (batch[1].id,)
    assert "1 of 3" in error.cause
    assert counts(queue) == {"finished": 3, "ready": 2}
    refuses(LeaseLost, queue.pop_many, 2, completing=batch)
    assert counts(queue) == {"finished": 3, "ready": 2}


def test_a_lease_that_is_over_is_completed_late(queue: Queue) -> None:
    """As with `complete`: a sweep in the same call must not run before the completion."""
    queue.push("a", now=at(0), **design_group(queue, "g"))
    late = claimed(queue, lease=10, now=at(0))
    assert queue.pop(completing=late, now=at(20)) is None
    assert counts(queue) == {"finished": 1}


@pytest.mark.parametrize("wrong", [{"lease": -1}, {"lease": "long"}])
def test_what_is_refused_completes_nothing(queue: Queue, wrong: dict[str, Any]) -> None:
    queue.push_many([*"ab"], **design_group(queue, "g"))
    message = claimed(queue)
    before = snapshot(queue)
    refuses(BadInput, queue.pop, completing=message, **wrong)
    refuses(BadInput, queue.pop_many, 0, completing=[message])
    assert snapshot(queue) == before


@pytest.mark.needs("plain_push")
def test_a_queue_without_history(db: Database, options: dict[str, Any]) -> None:
    queue = at_once(db.create_queue("work", **options | {"history": "none"}))
    queue.push_many([*"abc"])
    assert len(chain(queue)) == 3
    assert snapshot(queue) == []
    check_nothing_is_claimed_after_a_lost_lease(queue)


@pytest.mark.parametrize("design", ["fifo"])
def test_at_most_once(db: Database, options: dict[str, Any]) -> None:
    queue = at_once(db.create_queue("work", **options | {"delivery": "at_most_once"}))
    queue.push_many([*"abc"])
    assert len(chain(queue)) == 3
    assert counts(queue) == {"finished": 3}
    queue.push("d")
    message = claimed(queue)
    refuses(BadInput, queue.pop, completing=message, lease=5)
    assert queue.lost(older_than=0)[0].id == message.id, "and was not completed"


@pytest.mark.parametrize("design", ["fifo"])
def test_in_a_callers_transaction(queue: Queue, caller: Caller) -> None:
    queue.push_many([*"ab"])
    first = claimed(queue)
    assert claimed(queue, completing=first, connection=caller.connection).payload == "b"
    caller.rollback()
    assert counts(queue) == {"in_progress": 1, "ready": 1}
    second = claimed(queue, completing=first, connection=caller.connection)
    caller.commit()
    assert counts(queue) == {"finished": 1, "in_progress": 1}
    second.complete()


@pytest.mark.parametrize("design", ["fifo"])
def test_when_a_sweep_is_due(queue: Queue) -> None:
    queue.push_many([*"abc"])
    first = claimed(queue)
    context_of(queue).table.next_sweep = 0
    second = claimed(queue, completing=first)
    assert second.payload == "b"
    context_of(queue).table.next_sweep = 0
    refuses(LeaseLost, queue.pop, completing=first)
    assert counts(queue) == {"finished": 1, "in_progress": 1, "ready": 1}


@pytest.mark.parametrize("design", ["fifo"])
def test_what_is_before_the_mark_is_found(place: Place, kind: Kind, queue: Queue) -> None:
    """A message that another process released has an id below the low-water mark of this process; see low_water.py."""
    queue.push_many([*"abc"])
    other = place.open().queue("work")
    first = claimed(other)
    second = claimed(queue)
    third = claimed(queue, completing=second)
    first.release()
    assert claimed(queue, completing=third).id == first.id
