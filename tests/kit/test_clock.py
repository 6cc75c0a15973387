"""A test moves the clock: leases, delays, backoffs, schedules and all else that has a time goes by it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import tablequeue
from tablequeue import Backoff, Claim, Database, LeaseLost, Rate
from tablequeue.engines import clock as moved_by
from tablequeue.errors import BadInput
from tablequeue.testing import Clock, aio, assert_pushed, drain
from tablequeue.verbs.context import Context
from tablequeue.worker import Handler, Snooze, Worker
from tests.servers import Place

pytestmark = pytest.mark.quick

HOUR = timedelta(hours=1)


@pytest.fixture
def clock() -> Iterator[Clock]:
    with Clock() as clock:
        yield clock


def popped(queue: tablequeue.Queue) -> list[Any]:
    messages = queue.pop_many(10)
    queue.complete_many(messages)
    return [message.payload for message in messages]


def test_a_delay_ends(db: Database, clock: Clock) -> None:
    queue = db.create_queue("emails")
    queue.push("later", delay=HOUR)
    queue.push("at a time", due=clock.now() + 2 * HOUR)
    clock.advance(3500)
    assert popped(queue) == []
    clock.advance(200)
    assert popped(queue) == ["later"]
    clock.advance(HOUR)
    assert popped(queue) == ["at a time"]
    assert_pushed(queue, "later", delay=HOUR, count=1)


def test_a_delay_counts_from_the_moved_clock(db: Database, clock: Clock) -> None:
    queue = db.create_queue("emails", order="due")
    there = clock.move_to(datetime(2031, 2, 3, 4, 5, tzinfo=UTC))
    with db.engine.begin() as connection:
        queue.push("in a transaction", connection=connection, delay=60)
    queue.push_many(range(3), delay=60)
    for message in queue.peek(10, state="scheduled"):
        assert message.pushed_at - there < timedelta(seconds=60)
        assert message.due_at == message.pushed_at + timedelta(seconds=60)
    assert queue.stats().oldest_age is None
    assert popped(queue) == []
    clock.advance(120)
    assert len(popped(queue)) == 4


def test_a_lease_ends(db: Database, clock: Clock) -> None:
    queue = db.create_queue("emails", lease=60)
    queue.push(1)
    message = queue.pop()
    assert message is not None
    clock.advance(50)
    message.extend()
    clock.advance(50)
    assert queue.pop() is None
    clock.advance(20)
    again = queue.pop()
    assert again is not None
    assert again.attempt == 2
    with pytest.raises(LeaseLost):
        message.complete()
    again.complete()
    assert queue.history()[0].finished_at is not None


def test_a_backoff_and_a_snooze_end(db: Database, clock: Clock) -> None:
    queue = db.create_queue("emails", backoff=Backoff(600, jitter=0), max_attempts=3)

    def handler(message: Claim) -> Any:
        if message.payload == "snooze" and not snoozed:
            snoozed.append(1)
            return Snooze(clock.now() + HOUR)
        if message.payload == "fail":
            raise ValueError
        return None

    snoozed: list[int] = []
    queue.push_many(["snooze", "fail"])
    of = Handler("emails", handler)
    assert drain(of, db).counts == {"snoozed": 1, "scheduled": 1}
    assert drain(of, db) == []
    clock.advance(601)
    assert drain(of, db).counts == {"scheduled": 1}
    clock.advance(HOUR)
    assert drain(of, db).counts == {"completed": 1, "dead": 1}


def test_schedules_are_due(db: Database, clock: Clock) -> None:
    pytest.importorskip("cronsim")
    queue = db.create_queue("reports")
    worker = Worker()
    worker.every("0 6 * * *", "reports", "daily")
    worker.add(Handler("reports", lambda message: message.headers["due"]))
    clock.move_to(datetime(2030, 1, 1, 5, tzinfo=UTC))
    assert drain(worker, db) == []
    clock.advance(HOUR)
    assert [one.result for one in drain(worker, db)] == ["2030-01-01T06:00:00+00:00"]
    assert drain(worker, db) == []
    clock.advance(timedelta(days=3))
    assert [one.result for one in drain(worker, db)] == ["2030-01-04T06:00:00+00:00"]
    assert_pushed(queue, "daily", count=2)


def test_expiry_keys_and_pauses_end(db: Database, clock: Clock) -> None:
    queue = db.create_queue("emails", expires=3 * HOUR, unique_for=HOUR)
    queue.push(1, key="k")
    assert popped(queue) == [1]
    with pytest.raises(tablequeue.errors.DuplicateKey):
        queue.push(2, key="k")
    clock.advance(HOUR + timedelta(minutes=1))
    assert queue.push(2, key="k") is not None
    clock.advance(4 * HOUR)
    assert popped(queue) == []
    queue.push(3)
    queue.pause(HOUR)
    assert popped(queue) == []
    clock.advance(HOUR + timedelta(minutes=1))
    assert popped(queue) == [3]


def test_a_rate_goes_on(db: Database, clock: Clock) -> None:
    queue = db.create_queue("emails", rate=Rate(1, HOUR))
    queue.push_many(range(3))
    assert popped(queue) == [0]
    assert popped(queue) == []
    clock.advance(HOUR + timedelta(seconds=5))
    assert popped(queue) == [1]


def test_results_and_batches_end_at_the_moved_time(db: Database, clock: Clock) -> None:
    queue, done = db.create_queue("parts", batches=True, results=True), db.create_queue("done")
    there = clock.move_to(datetime(2031, 2, 3, tzinfo=UTC))
    with queue.batch(then=("done", "all")) as batch:
        batch.push_many([1, 2])
    assert drain(Handler("parts", lambda message: 7), db).counts == {"completed": 2}
    assert there <= done.peek()[0].pushed_at <= there + HOUR
    assert popped(done) == ["all"]
    assert all(there <= message.finished_at <= there + HOUR for message in queue.history() if message.finished_at)


def test_a_subscription_goes_by_it(db: Database, clock: Clock) -> None:
    topic = db.create_topic("events")
    mail = topic.subscribe("mail", lease=60)
    topic.push_many(range(3))
    assert len(mail.pop_many(3)) == 3
    assert mail.pop() is None
    clock.advance(90)
    assert sorted(message.payload for message in [*mail.pop_many(3), *mail.pop_many(3)]) == [0, 1, 2]


def test_async_verbs_go_by_it(place: Place, clock: Clock) -> None:
    async def main() -> None:
        db = await tablequeue.aio.connect(place.url, schema=place.schema)
        queue = await db.create_queue("emails")
        await queue.push(1, delay=HOUR)
        assert await queue.pop() is None
        clock.advance(HOUR + timedelta(seconds=1))
        with tablequeue.connect(place.url, schema=place.schema) as own:
            assert (await aio.drain(Handler("emails", waits), own)).counts == {"completed": 1}
            own.engine.dispose()
        await db.close()

    import tablequeue.aio

    asyncio.run(main())


async def waits(message: Claim) -> None:
    await asyncio.sleep(0)


def test_a_given_time_counts(db: Database, clock: Clock) -> None:
    queue = db.create_queue("emails")
    clock.advance(HOUR)
    queue.push(1, now=datetime(2030, 1, 1, tzinfo=UTC))
    assert queue.peek()[0].pushed_at == datetime(2030, 1, 1, tzinfo=UTC)


def test_the_clock_is_right_again_at_the_end(db: Database) -> None:
    queue = db.create_queue("emails")
    with Clock() as outer:
        outer.advance(HOUR)
        with Clock() as inner:
            inner.advance(HOUR)
            queue.push("two")
        queue.push("one")
    queue.push("now")
    assert moved_by.ahead is None
    two, one, now = (message.pushed_at for message in queue.peek())
    assert two - now > timedelta(minutes=115)
    assert timedelta(minutes=55) < one - now < timedelta(minutes=65)


def test_the_past_is_a_time_too(db: Database, clock: Clock) -> None:
    queue = db.create_queue("emails")
    clock.move_to(datetime(1999, 12, 31, tzinfo=UTC))
    queue.push(1, delay=HOUR)
    clock.advance(2 * HOUR)
    assert popped(queue) == [1]
    assert queue.history()[0].pushed_at.year == 1999


def test_a_clock_is_moved_in_its_block_alone() -> None:
    with pytest.raises(BadInput, match=r"outside of its block, so nothing would set it right\. Write `with Clock"):
        Clock().advance(1)
    assert moved_by.ahead is None


WRONG = {
    "naive": (lambda clock: clock.move_to(datetime(2030, 1, 1)), "does not say its time zone"),
    "text": (lambda clock: clock.move_to("2030"), "'2030' does not say its time zone"),
    "far": (lambda clock: clock.move_to(datetime(9999, 1, 1, tzinfo=UTC)), "is too far away. Give a time from 1970"),
    "back": (lambda clock: clock.advance(-1), "duration is -1. Give seconds"),
    "words": (lambda clock: clock.advance("1h"), "duration is '1h'. Give seconds"),
    "twice": (lambda clock: [clock.advance(3.1e9) for _ in range(99)], "is too far away"),
}


@pytest.mark.parametrize(("call", "words"), WRONG.values(), ids=WRONG)
def test_wrong_input_is_refused(clock: Clock, call: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        call(clock)


def test_a_clock_that_does_not_move_is_detected(db: Database, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """In two places, because some operations have parameters that no runner sees."""
    with monkeypatch.context() as runners:
        runners.setattr(moved_by, "moved", lambda engine, params: params)
        with pytest.raises(AssertionError):
            test_a_delay_counts_from_the_moved_clock(db, clock)
    right = Context.time
    monkeypatch.setattr(
        Context, "time", lambda self, time, what="now": None if time is None else right(self, time, what)
    )
    with pytest.raises(AssertionError):
        test_results_and_batches_end_at_the_moved_time(db, clock)
