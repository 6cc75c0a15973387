"""pop, pop_many, receive, consume, peek, find, stats, history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tablequeue import Database, Empty, LiveState, Queue
from tablequeue.errors import BadInput, LeaseLost
from tests.servers import Place
from tests.support import at, claimed, counts, found, ids_of, refuses

pytestmark = [pytest.mark.quick, pytest.mark.needs("plain_push")]


def test_an_empty_queue_gives_nothing(queue: Queue) -> None:
    assert queue.pop() is None
    assert queue.pop_many(10) == []
    assert queue.pop(now=at(0)) is None
    assert queue.peek() == []
    assert queue.dead() == []
    assert queue.history() == []
    assert queue.find(1) is None
    assert queue.stats().oldest_age is None
    assert counts(queue) == {}


def test_a_claim_says_everything(place: Place, queue: Queue) -> None:
    id = queue.push("x", headers={"a": 1}, now=at(0))
    claim = claimed(place.open("bob").queue("work"), lease=30, now=at(5))
    assert (claim.id, claim.payload, claim.headers, claim.attempt) == (id, "x", {"a": 1}, 1)
    assert (claim.pushed_at, claim.popped_at, claim.lease_until) == (at(0), at(5), at(35))
    message = found(queue, id)
    assert (message.state, message.consumer, message.attempts) == ("in_progress", "bob", 1)
    assert (message.first_popped_at, message.popped_at, message.lease_until) == (at(5), at(5), at(35))


def test_the_lease_of_the_queue_is_the_default(queue: Queue) -> None:
    queue.push("x")
    assert claimed(queue, now=at(0)).lease_until == at(queue.definition.lease)


@pytest.mark.needs("many_in_progress")
def test_a_message_is_claimed_once(queue: Queue) -> None:
    queue.push_many([*"abc"])
    first, rest = queue.pop_many(1), queue.pop_many(10)
    assert len(rest) == 2
    assert len({*ids_of(first), *ids_of(rest)}) == 3
    assert queue.pop() is None
    assert counts(queue) == {"in_progress": 3}


def test_pop_many_wants_a_number(queue: Queue) -> None:
    queue.push("x")
    for n in (0, -1, 1.5, "1", None):
        refuses(BadInput, queue.pop_many, n)
        assert counts(queue) == {"ready": 1}
    refuses(BadInput, queue.pop, lease=-1)
    refuses(BadInput, queue.pop, lease="60")
    refuses(BadInput, queue.peek, 0)
    refuses(BadInput, queue.peek, state="lost")
    refuses(BadInput, queue.find, -1)
    refuses(BadInput, queue.find, 1 << 63)
    refuses(BadInput, queue.history, 0)


def test_receive_completes(queue: Queue) -> None:
    id = queue.push("x")
    with queue.receive() as message:
        assert message.payload == "x"
        assert counts(queue) == {"in_progress": 1}
    assert ids_of(queue.history()) == [id]


def test_receive_fails_with_the_traceback_and_raises(queue: Queue) -> None:
    id = queue.push("x")
    with pytest.raises(ZeroDivisionError), queue.receive():
        _ = 1 / 0
    message = found(queue, id)
    assert message.state == "scheduled"
    (error,) = message.errors
    assert error.attempt == 1
    assert "_ = 1 / 0" in error.error
    assert "ZeroDivisionError" in error.error
    assert "test_consume.py" in error.error


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_receive_releases_when_interrupted(queue: Queue, interrupt: type[BaseException]) -> None:
    id = queue.push("x")
    with pytest.raises(interrupt), queue.receive():
        raise interrupt
    message = found(queue, id)
    assert (message.state, message.attempts, message.errors) == ("ready", 0, ())


def test_receive_on_an_empty_queue(queue: Queue) -> None:
    with pytest.raises(Empty), queue.receive(wait=0):
        raise AssertionError("there is nothing to receive")


def test_receive_tells_that_the_lease_was_lost(place: Place, queue: Queue) -> None:
    queue.push("x")
    other = place.open().queue("work")
    with pytest.raises(LeaseLost), queue.receive() as message:
        assert ids_of([claimed(other, now=at(0))]) == [message.id]
    assert counts(queue) == {"in_progress": 1}


def test_consume_ends_when_nothing_is_left(queue: Queue) -> None:
    ids = queue.push_many([*"abcde"])
    seen = []
    for message in queue.consume(wait=0, prefetch=2):
        seen.append(message.id)
        message.complete()
    assert sorted(seen) == ids
    assert counts(queue) == {"finished": 5}


@pytest.mark.needs("many_in_progress")
def test_consume_releases_what_was_prefetched(queue: Queue) -> None:
    queue.push_many([*"abcde"])
    messages = queue.consume(wait=0, prefetch=4)
    mine = next(messages)
    assert counts(queue) == {"in_progress": 4, "ready": 1}
    messages.close()  # type: ignore[attr-defined]
    assert counts(queue) == {"in_progress": 1, "ready": 4}
    assert {message.attempts for message in queue.peek()} == {0}
    mine.complete()


def test_consume_sees_what_is_pushed_meanwhile(queue: Queue) -> None:
    last = queue.push("0")
    for message in queue.consume(wait=0):
        if message.payload != "4":
            last = queue.push(str(int(message.payload) + 1))
        message.complete()
    assert queue.history()[0].id == last
    assert counts(queue) == {"finished": 5}


@pytest.mark.needs("many_in_progress")
def test_peek_claims_nothing_and_goes_by_id(queue: Queue) -> None:
    ids = queue.push_many(map(str, range(20)))
    assert ids_of(queue.peek()) == ids[:10]
    assert ids_of(queue.peek(15)) == ids[:15]
    assert counts(queue) == {"ready": 20}
    assert {message.attempts for message in queue.peek(20)} == {0}


@pytest.mark.needs("many_in_progress")
def test_each_state_can_be_seen(queue: Queue) -> None:
    scheduled = queue.push("scheduled", delay=60)
    dead = queue.push("dead")
    for _ in range(3):
        claimed(queue).fail("no", retry_in=0)
    popped = queue.push("popped")
    claimed(queue)
    ready = queue.push("ready")
    ids: dict[LiveState, int] = {"ready": ready, "scheduled": scheduled, "in_progress": popped, "dead": dead}
    for state, id in ids.items():
        assert ids_of(queue.peek(10, state=state)) == [id]
        assert found(queue, id).state == state
    assert ids_of(queue.dead()) == [dead]
    assert counts(queue) == {"ready": 1, "scheduled": 1, "in_progress": 1, "dead": 1}


@pytest.mark.needs("many_in_progress")
def test_the_oldest_age(queue: Queue) -> None:
    queue.push("scheduled", now=at(-100), delay=500)
    queue.push("first", now=at(0))
    queue.push("second", now=at(50))
    assert queue.stats(now=at(90)).oldest_age == pytest.approx(90)


def test_the_history_says_what_became_of_a_message(queue: Queue) -> None:
    id = queue.push("x", headers={"a": 1}, now=at(0))
    claimed(queue, now=at(5)).fail("first try", retry_in=10, now=at(6))
    claimed(queue, now=at(20)).complete(now=at(23))
    (message,) = queue.history()
    assert (message.id, message.payload, message.headers, message.state) == (id, "x", {"a": 1}, "finished")
    assert (message.attempts, message.lease_until) == (2, None)
    assert (message.pushed_at, message.first_popped_at) == (at(0), at(5))
    assert (message.popped_at, message.finished_at) == (at(20), at(23))
    assert message.wait_time == at(5) - at(0)
    assert message.run_time == at(23) - at(20)
    assert [(error.attempt, error.at, error.error) for error in message.errors] == [(1, at(6), "first try")]
    assert queue.find(id) == message


@pytest.mark.needs("many_in_progress")
def test_the_history_shows_the_highest_ids_first(queue: Queue) -> None:
    ids = queue.push_many(map(str, range(10)))
    queue.complete_many(queue.pop_many(10))
    assert ids_of(queue.history(3)) == ids[:-4:-1]
    assert ids_of(queue.history()) == ids[::-1]


LOOKS: dict[str, Callable[[Queue], Any]] = {
    "peek": lambda queue: queue.peek(),
    "find": lambda queue: queue.find(1),
    "stats": lambda queue: queue.stats().ready,
    "dead": lambda queue: queue.dead(),
    "history": lambda queue: queue.history(),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_read_waits_for_nobody(db: Database, queue: Queue, look: Callable[[Queue], Any]) -> None:
    """An open transaction of another program does not block a read, and its changes are not visible."""
    queue.push("x")
    before = look(queue)
    with db.engine.connect() as connection:
        queue.push("y", connection=connection)
        claimed(queue, connection=connection).complete(connection=connection)
        assert look(queue) == before
