"""The order that a definition promises, checked by a reference comparator and an example for each promise."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tablequeue import Backoff, Claim, Consumer, Database, NewMessage, Order, Queue
from tests.checks import check_a_failed_head_holds_the_others, check_order
from tests.nightly import by_night
from tests.servers import Kind, Place
from tests.support import at, claimed, counts, found, ids_of, with_parts

pytestmark = [pytest.mark.quick, pytest.mark.designs("order"), pytest.mark.variants("procedures")]


@pytest.mark.parametrize("seed", by_night(range(4), lambda seed: seed < 2))
def test_a_random_life(queue: Queue, seed: int) -> None:
    check_order(queue, seed)


# -- fifo --------------------------------------------------------------------------------------------------------------


def test_fifo_one_by_one(db: Database) -> None:
    queue = db.create_queue("work", order="fifo")
    ids = [queue.push(number) for number in range(5)] + queue.push_many(range(5, 1500))
    popped = [claimed(queue).id for _ in range(20)] + ids_of(queue.pop_many(2000))
    assert popped == ids


def test_fifo_a_message_that_comes_back_is_first_again(db: Database) -> None:
    queue = db.create_queue("work", order="fifo")
    first, second, third = queue.push_many([*"abc"])
    claim = claimed(queue)
    assert claimed(queue).id == second
    claim.fail("again", retry_in=0)
    claim = claimed(queue)
    assert claim.id == first
    claim.release()
    assert ids_of(queue.pop_many(2)) == [first, third]


def test_fifo_goes_by_id_not_by_due_time(db: Database) -> None:
    queue = db.create_queue("work", order="fifo")
    late = queue.push("late", delay=20, now=at(0))
    soon = queue.push("soon", delay=10, now=at(0))
    assert ids_of(queue.pop_many(2, now=at(30))) == [late, soon]


@pytest.mark.parametrize(
    ("order", "first"), [("fifo", "abandoned"), ("lifo", "new"), ("due", "abandoned"), ("priority", "abandoned")]
)
def test_a_batch_is_in_order_though_some_of_it_came_back_only_now(db: Database, order: Order, first: str) -> None:
    """If too few messages are ready, the claim sweeps. Messages found by the sweep may belong before the others."""
    queue = db.create_queue("work", order=order)
    assert queue.pop() is None  # the first claim of a process sweeps, and the second one does not yet
    queue.push("abandoned")
    claimed(queue, lease=0)
    queue.push("new")
    payloads = [claim.payload for claim in queue.pop_many(2)]
    assert payloads == [first, *({"abandoned", "new"} - {first})]


# -- lifo --------------------------------------------------------------------------------------------------------------


def test_lifo_the_newest_first(db: Database) -> None:
    queue = db.create_queue("work", order="lifo")
    first, second, third = queue.push_many([*"abc"])
    claim = claimed(queue)
    assert claim.id == third
    fourth = queue.push("d")
    assert claimed(queue).id == fourth
    claim.fail("again", retry_in=0)
    assert ids_of(queue.pop_many(10)) == [third, second, first]


# -- due ---------------------------------------------------------------------------------------------------------------


def test_due_the_one_that_has_been_due_longest_first(db: Database) -> None:
    queue = db.create_queue("work", order="due")
    late = queue.push("late", delay=20, now=at(0))
    soon = queue.push("soon", due=at(10), now=at(0))
    past = queue.push("past", due=at(-5), now=at(0))
    at_once = queue.push("at once", now=at(0))
    same = queue.push("the same moment", due=at(10), now=at(0))
    assert ids_of(queue.pop_many(10, now=at(9.999999))) == [past, at_once]
    assert ids_of(queue.pop_many(10, now=at(30))) == [soon, same, late]


def test_due_a_retry_goes_to_its_new_place(db: Database) -> None:
    queue = db.create_queue("work", order="due")
    first, second, third = (queue.push("x", due=at(number), now=at(0)) for number in (1, 5, 9))
    claimed(queue, now=at(1)).fail("later", retry_in=6, now=at(1))
    assert ids_of(queue.pop_many(10, now=at(20))) == [second, first, third]


def test_due_a_released_message_has_been_due_longest_again(db: Database) -> None:
    queue = db.create_queue("work", order="due")
    first, second = (queue.push("x", due=at(number), now=at(0)) for number in (1, 5))
    claimed(queue, now=at(10)).release(now=at(10))
    assert ids_of(queue.pop_many(10, now=at(10))) == [first, second]


def test_due_needs_no_sweep(kind: Kind, place: Place) -> None:
    """Due times are exact at every claim, although processes sweep only now and then."""

    class Unswept(type(kind.engine_class.messages)):  # type: ignore[misc]
        def sweep(self, cursor: Any, table: Any, params: dict[str, Any]) -> int:
            return 0

    queue = place.open_with(with_parts(kind.engine_class, {"messages": Unswept})).create_queue("work", order="due")
    late = queue.push("late", delay=20, now=at(0))
    soon = queue.push("soon", delay=10, now=at(0))
    assert queue.pop(now=at(9.999999)) is None
    assert claimed(queue, now=at(10)).id == soon
    assert claimed(queue, now=at(20)).id == late


# -- priority ----------------------------------------------------------------------------------------------------------


def test_priority_the_highest_first_then_the_lowest_id(db: Database) -> None:
    queue = db.create_queue("work", order="priority")
    priorities = [0, 5, None, -3, 5, (1 << 31) - 1, -(1 << 31) + 1]
    zero, five, none, minus, again, top, bottom = [queue.push("x", priority=priority) for priority in priorities]
    claim = claimed(queue)
    assert (claim.id, claim.priority) == (top, (1 << 31) - 1)
    assert ids_of(queue.pop_many(4)) == [five, again, zero, none]
    assert (claimed(queue).id, claimed(queue).id) == (minus, bottom)


def test_priority_of_many_and_of_each(db: Database) -> None:
    queue = db.create_queue("work", order="priority")
    ids = queue.push_many(["a", NewMessage("b", priority=9), NewMessage("c")], priority=4)
    more = queue.push_many([*"de"], priority=5)
    assert ids_of(queue.pop_many(10)) == [ids[1], *more, ids[0], ids[2]]
    assert [message.priority for message in queue.peek(10, state="in_progress")] == [4, 9, 4, 5, 5]


def test_priority_only_among_those_that_are_ready(db: Database) -> None:
    queue = db.create_queue("work", order="priority")
    high = queue.push("high", priority=9, delay=10, now=at(0))
    low = queue.push("low", priority=1, now=at(0))
    assert claimed(queue, now=at(9)).id == low
    assert claimed(queue, now=at(10)).id == high


# -- strict ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def strict(db: Database) -> Queue:
    return db.create_queue("work", strict=True, max_attempts=2, backoff=Backoff(base=10, jitter=0))


def test_strict_one_at_a_time(strict: Queue) -> None:
    ids = strict.push_many([*"abc"])
    for id in ids:
        claims = strict.pop_many(10)
        assert ids_of(claims) == [id]
        assert strict.pop() is None
        claims[0].complete()
    assert strict.pop() is None
    assert counts(strict) == {"finished": 3}


def test_strict_the_others_are_blocked(strict: Queue) -> None:
    ids = strict.push_many([*"abc"])
    claimed(strict)
    assert counts(strict) == {"in_progress": 1, "blocked": 2}
    assert ids_of(strict.peek(state="blocked")) == ids[1:]
    assert found(strict, ids[1]).group is None


def test_strict_a_failed_head_holds_the_others(strict: Queue) -> None:
    check_a_failed_head_holds_the_others(strict)


def test_strict_a_delayed_head_holds_the_others(strict: Queue) -> None:
    head = strict.push("later", delay=10, now=at(0))
    other = strict.push("at once", now=at(0))
    assert strict.pop(now=at(9)) is None
    claim = claimed(strict, now=at(10))
    assert claim.id == head
    assert strict.pop(now=at(10)) is None
    claim.complete(now=at(10))
    assert claimed(strict, now=at(10)).id == other


def test_strict_a_delay_may_run_out_while_others_are_ahead(strict: Queue) -> None:
    strict.push("first", now=at(0))
    second = strict.push("second", delay=10, now=at(0))
    strict.push("third", delay=30, now=at(0))
    claimed(strict, now=at(0)).complete(now=at(20))
    claim = claimed(strict, now=at(20))
    assert claim.id == second
    claim.complete(now=at(20))
    assert strict.pop(now=at(29)) is None
    assert claimed(strict, now=at(30)).payload == "third"


@pytest.mark.parametrize("way", ["failed", "killed"])
def test_strict_a_dead_head_lets_the_next_one_go(strict: Queue, way: str) -> None:
    dead, following = strict.push_many([*"ab"], now=at(0))
    for time in (0, 100):
        claim = claimed(strict, lease=10, now=at(time))
        assert claim.id == dead
        if way == "failed":
            claim.fail("no", retry_in=0, now=at(time))
    assert claimed(strict, now=at(200)).id == following
    assert ids_of(strict.dead()) == [dead]


def test_strict_behind_a_killed_head_the_next_one_may_be_due_already(strict: Queue) -> None:
    """The claim that makes the head a dead letter returns the message behind it."""
    strict.push("killed", now=at(0))
    following = strict.push("due by then", delay=50, now=at(0))
    for time in (0, 10):
        claimed(strict, lease=10, now=at(time))
    assert claimed(strict, now=at(100)).id == following


def test_strict_a_released_head_comes_first_again(strict: Queue) -> None:
    head, _ = strict.push_many([*"ab"], now=at(0))
    claimed(strict, now=at(0)).release(now=at(0))
    claim = claimed(strict, now=at(0))
    assert claim.id == head
    claim.release(delay=10, now=at(0))
    assert strict.pop(now=at(9)) is None
    assert claimed(strict, now=at(10)).id == head


def test_strict_a_lease_that_ended_gives_the_head_again(strict: Queue) -> None:
    head, other = strict.push_many([*"ab"], now=at(0))
    claimed(strict, lease=10, now=at(0))
    assert strict.pop(now=at(9)) is None
    claim = claimed(strict, now=at(10))
    assert (claim.id, claim.attempt) == (head, 2)
    claim.complete(now=at(11))
    assert claimed(strict, now=at(11)).id == other


def test_strict_a_waiting_consumer_gets_the_next_one_after_the_completion(strict: Queue, place: Place) -> None:
    first, second = strict.push_many([*"ab"])
    claim = claimed(strict)
    waiting = place.open().queue("work")
    # The consumer has seen that the head is in progress, so only the completion can give it the second message.
    assert waiting.pop() is None

    def wait() -> Claim:
        with waiting.receive(wait=60) as message:
            assert counts(strict)["finished"] == 1
            return message

    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(wait)
        assert claim.id == first
        claim.complete()
        assert future.result(60).id == second
    assert counts(strict) == {"finished": 2}


def test_strict_many_consumers_never_have_two_at_once(strict: Queue, place: Place) -> None:
    ids = strict.push_many(range(40))
    seen: list[int] = []

    def consume(queue: Consumer) -> None:
        for message in queue.consume(wait=0.5):
            # No other thread may run between the two calls, so that the list is in the order of the ids.
            assert strict.stats().in_progress == 1
            seen.append(message.id)
            message.complete()

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(consume, [place.open().queue("work") for _ in range(3)]))
    assert seen == ids
