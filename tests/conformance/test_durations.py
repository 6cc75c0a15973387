"""Durations: a timedelta means what its number of seconds means, in every verb and in every definition."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tablequeue import Backoff, Database, NewMessage, Queue, aio
from tablequeue.errors import BadDefinition, BadInput, Empty
from tablequeue.ext import waiter_of
from tests.async_support import claimed as claimed_async
from tests.async_support import in_loop
from tests.servers import Place
from tests.support import at, claimed, counts, found, refuses

pytestmark = pytest.mark.quick


def after(number: float) -> timedelta:
    return timedelta(seconds=number)


@pytest.fixture
def queue(db: Database) -> Queue:
    return db.create_queue("work", payload="text")


def test_a_definition_in_timedeltas_is_the_same_as_in_seconds(place: Place) -> None:
    backoff = Backoff(base=after(5), factor=3, cap=timedelta(minutes=1), jitter=0)
    assert backoff == Backoff(5, 3, 60, 0)
    made = place.open().create_queue("work", lease=timedelta(minutes=2), history=timedelta(days=1), backoff=backoff)
    again = place.open().create_queue("work", lease=120, history=86400, backoff=Backoff(5, 3, 60, 0))
    for definition in (made.definition, again.definition, place.open().queue("work").definition):
        assert (definition.lease, definition.retention) == (120, 86400)
        assert (definition.backoff.base, definition.backoff.cap) == (5, 60)
    made.push(1, now=at(0))
    claim = claimed(made, now=at(0))
    assert claim.lease_until == at(120)
    claim.fail(now=at(1))
    assert found(made, claim.id).due_at == at(6)


def test_a_backoff_with_a_timedelta_that_cannot_be(db: Database) -> None:
    for backoff in (Backoff(cap=timedelta(0)), Backoff(cap=after(-1)), Backoff(base=after(-1))):
        refuses(BadDefinition, db.create_queue, "work", backoff=backoff)
    assert db.queues() == []


@pytest.mark.parametrize("wrong", [timedelta(0), timedelta(seconds=-1), timedelta.max], ids=repr)
def test_a_definition_with_a_timedelta_that_cannot_be(db: Database, wrong: timedelta) -> None:
    refuses(BadDefinition, db.create_queue, "work", lease=wrong)
    refuses(BadDefinition, db.create_queue, "work", history=wrong)
    assert db.queues() == []


def test_each_verb_takes_a_timedelta(queue: Queue) -> None:
    first = queue.push("first", delay=after(10), now=at(0))
    second, third = queue.push_many([NewMessage("second", delay=after(20)), "third"], delay=after(30), now=at(0))
    assert [found(queue, id).due_at for id in (first, second, third)] == [at(10), at(20), at(30)]
    claim = claimed(queue, lease=after(15), now=at(10))
    assert (claim.id, claim.lease_until) == (first, at(25))
    assert claim.extend(after(25), now=at(11)) == queue.extend(claim, 25, now=at(11)) == at(36)
    assert claim.fail("busy", retry_in=after(40), now=at(12)) == "scheduled"
    assert found(queue, first).due_at == at(52)
    (claim,) = queue.pop_many(1, lease=after(5), now=at(20))
    assert (claim.id, claim.lease_until) == (second, at(25))
    claim.release(delay=after(30), now=at(21))
    assert found(queue, second).due_at == at(51)
    batch = queue.pop_many(1, now=at(30))
    queue.release_many(batch, delay=after(20), now=at(31))
    assert found(queue, third).due_at == at(51)


def test_each_verb_that_waits_takes_a_timedelta(queue: Queue) -> None:
    with pytest.raises(Empty, match=r"within 0\.001 s"), queue.receive(wait=after(0.001)):
        raise AssertionError("there is nothing to receive")
    assert list(queue.consume(wait=timedelta(0))) == []
    with waiter_of(queue, longest_pause=after(0.001)) as waiter:
        waiter.wait(after(0.003))
    queue.push("x")
    with queue.receive(wait=timedelta(0), lease=timedelta(minutes=5)) as message:
        assert message.lease_until == message.popped_at + timedelta(minutes=5)
    queue.push("y")
    (message,) = queue.consume(wait=timedelta(0), lease=timedelta(minutes=5))
    assert message.lease_until == message.popped_at + timedelta(minutes=5)


def test_each_verb_that_looks_back_takes_a_timedelta(db: Database, queue: Queue) -> None:
    queue.push_many([*"ab"], now=at(0))
    queue.complete_many(queue.pop_many(2, now=at(0)), now=at(10))
    assert (window := queue.stats(window=timedelta(minutes=1), now=at(20)).window) is not None
    assert (window.seconds, window.queue.finished) == (60, 2)
    assert queue.purge_history(after(5), now=at(20)) == 2
    once = db.create_queue("once", delivery="at_most_once")
    once.push(1, now=at(0))
    claimed(once, now=at(0))
    assert [len(once.lost(older_than=after(age), now=at(10))) for age in (9, 11)] == [1, 0]


@in_loop
async def test_each_async_verb_takes_a_timedelta(place: Place) -> None:
    async with await aio.connect(place.url, schema=place.schema) as db:
        queue = await db.create_queue("work", payload="text", lease=timedelta(minutes=2))
        assert queue.definition.lease == 120
        await queue.push("x", delay=after(10), now=at(0))
        claim = await claimed_async(queue, lease=after(15), now=at(10))
        assert claim.lease_until == at(25)
        assert await claim.extend(after(20), now=at(11)) == await queue.extend(claim, after(20), now=at(11)) == at(31)
        assert await claim.fail("busy", retry_in=after(10), now=at(12)) == "scheduled"
        claim = await claimed_async(queue, now=at(22))
        await claim.release(delay=after(10), now=at(23))
        await queue.release(await claimed_async(queue, now=at(33)), delay=after(10), now=at(34))
        await queue.release_many(await queue.pop_many(1, lease=after(5), now=at(44)), delay=after(10), now=at(45))
        await queue.fail(await claimed_async(queue, now=at(55)), retry_in=timedelta(0), now=at(55))
        async with queue.receive(wait=after(0.001), lease=after(5)) as message:
            assert message.id == claim.id
        with pytest.raises(Empty, match=r"within 0\.001 s"):
            async with queue.receive(wait=after(0.001)):
                raise AssertionError("there is nothing to receive")
        async for _ in queue.consume(wait=timedelta(0), lease=after(5)):
            raise AssertionError("there is nothing to consume")
        assert (await queue.stats(window=timedelta(minutes=1))).finished == 1
        assert await queue.purge_history(timedelta(0)) == 1


WRONG: list[Any] = [-1, float("nan"), 1e300, "1", True, timedelta(days=-1), timedelta.max, [1]]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda value: repr(value)[:20])
def test_a_time_to_wait_that_cannot_be(queue: Queue, wrong: Any) -> None:
    queue.push("x")
    refuses(BadInput, next, queue.consume(wait=wrong))
    refuses(BadInput, next, queue.consume(wait=0, lease=wrong))
    refuses(BadInput, queue.receive(wait=wrong).__enter__)
    refuses(BadInput, waiter_of, queue, wrong)
    refuses(BadInput, queue.stats, window=wrong)
    assert counts(queue) == {"ready": 1}
