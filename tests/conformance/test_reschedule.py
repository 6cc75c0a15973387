"""Reschedules: a message that waits gets another due time or priority, and no other message does."""

from __future__ import annotations

from threading import Event, Thread

import pytest

from tablequeue import ALL, Database, Queue
from tablequeue.errors import BadInput
from tablequeue.ext import waiter_of
from tests.callers import Caller
from tests.servers import Place
from tests.support import at, claimed, counts, design_group, found, ids_of, refuses

pytestmark = pytest.mark.quick


def push(queue: Queue, **options: object) -> int:
    id: int = queue.push("m", **design_group(queue, "g"), **options)  # type: ignore[call-overload]
    return id


def test_later(queue: Queue) -> None:
    id = push(queue, now=at(0))
    queue.reschedule(id, delay=60, now=at(1))
    message = found(queue, id)
    assert (message.state, message.due_at, message.attempts) == ("scheduled", at(61), 0)
    assert queue.pop(now=at(60)) is None
    assert claimed(queue, now=at(61)).id == id


def test_earlier(queue: Queue) -> None:
    id = push(queue, delay=600, now=at(0))
    queue.reschedule(id, due=at(50), now=at(1))
    assert found(queue, id).due_at == at(50)
    queue.reschedule(id, delay=0, now=at(2))
    assert (found(queue, id).state, found(queue, id).due_at) == ("ready", at(2))
    assert claimed(queue, now=at(2)).id == id


def test_earlier_than_others(db: Database) -> None:
    queue = db.create_queue("work", order="due")
    first, second = queue.push(1, due=at(10)), queue.push(2, due=at(20))
    queue.reschedule(second, due=at(5))
    assert ids_of(queue.pop_many(2, now=at(30))) == [second, first]


def test_priority(db: Database) -> None:
    queue = db.create_queue("work", order="priority")
    first, second = queue.push(1), queue.push(2, delay=60, now=at(0))
    queue.reschedule(second, priority=5, now=at(1))
    assert (found(queue, second).priority, found(queue, second).state) == (5, "scheduled")
    queue.reschedule(second, priority=7, delay=0, now=at(1))
    assert ids_of(queue.pop_many(2, now=at(1))) == [second, first]


def test_one_behind_another_stays_behind_it(db: Database) -> None:
    queue = db.create_queue("work", groups=True)
    first, second = queue.push(1, group="g", now=at(0)), queue.push(2, group="g", now=at(0))
    queue.reschedule(second, delay=60, now=at(0))
    assert found(queue, second).state == "blocked"
    claimed(queue, now=at(0)).complete(now=at(1))
    assert queue.pop(now=at(2)) is None, f"{first} is done, and {second} is not due"
    assert claimed(queue, now=at(61)).id == second


def test_another_process_sees_what_is_ready_earlier(queue: Queue, place: Place) -> None:
    """Its claims may begin above the message: it is found when it sweeps, or finds nothing else."""
    other = place.open().queue(queue.name)
    low, high = push(queue, delay=600), push(queue)
    if not queue.definition.grouped:
        message = claimed(other)
        assert message.id == high
        message.complete()
    queue.reschedule(low, delay=0)
    assert claimed(other).id == low
    assert counts(queue)["in_progress"] == 1


def test_a_consumer_that_waits_is_woken(queue: Queue, place: Place) -> None:
    id = push(queue, delay=3600)
    got: list[int] = []
    waits = Event()

    def consume() -> None:
        own = place.open().queue(queue.name)
        with waiter_of(own) as waiter:
            while not got:
                got.extend(ids_of(own.pop_many(1)))
                waits.set()
                if not got:
                    waiter.wait(60)

    thread = Thread(target=consume)
    thread.start()
    assert waits.wait(60)
    queue.reschedule(id, delay=0)
    thread.join(60)
    assert got == [id]


def test_what_does_not_wait_is_refused(queue: Queue) -> None:
    id = push(queue)
    message = claimed(queue)
    before = found(queue, id)
    assert "in progress" in refuses(BadInput, queue.reschedule, id, delay=5).cause
    assert found(queue, id) == before
    message.fail("why", retry=False)
    assert "dead letter" in refuses(BadInput, queue.reschedule, id, delay=5).cause
    queue.redrive(ALL)
    claimed(queue).complete()
    assert "finished" in refuses(BadInput, queue.reschedule, id, delay=5).cause
    assert "no message 999" in refuses(BadInput, queue.reschedule, 999, delay=5).cause
    queue.cancel(waiting := push(queue))
    assert "cancelled" in refuses(BadInput, queue.reschedule, waiting, delay=5).cause


def test_what_cannot_be_meant_is_refused(queue: Queue) -> None:
    id = push(queue)
    refuses(BadInput, queue.reschedule, id)
    refuses(BadInput, queue.reschedule, id, delay=1, due=at(1))
    refuses(BadInput, queue.reschedule, id, delay=-1)
    if queue.definition.order != "priority":
        refuses(BadInput, queue.reschedule, id, priority=1)
    assert found(queue, id).state == "ready"


@pytest.mark.needs("plain_push")
def test_a_reschedule_is_a_part_of_the_callers_transaction(queue: Queue, caller: Caller) -> None:
    id = push(queue)
    queue.reschedule(id, delay=60, connection=caller.connection)
    caller.rollback()
    assert found(queue, id).state == "ready"
    queue.reschedule(id, delay=60, connection=caller.connection)
    caller.commit()
    assert found(queue, id).state == "scheduled"
