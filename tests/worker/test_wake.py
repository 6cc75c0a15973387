"""Those who wait are woken, or find what they wait for by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Event
from typing import Any

import pytest

import tablequeue.aio
from tablequeue import Database, NewMessage, Queue
from tablequeue.aiowait import AsyncWaiter
from tablequeue.engines.poll import Poll
from tablequeue.operations import wait
from tests.servers import Kind, Place, only
from tests.support import claimed
from tests.worker.support import PATIENCE, until

# Pauses so long that whoever waits for them fails the test.
LONG = (PATIENCE * 2, PATIENCE * 2)


@pytest.fixture
def queue(db: Database) -> Queue:
    return db.create_queue("work", payload="text", lease=3600)


@pytest.fixture
def long_pauses(monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    if kind.engine_class.wire is None:
        pytest.skip("nothing wakes those who wait on this engine")
    monkeypatch.setattr(wait, "PAUSES_WITH_BELL", LONG)


@contextmanager
def waiting(queue: Queue) -> Iterator[Future[Any]]:
    """One who waits for a message, and is asleep when the block begins; the message is completed."""
    looks = count_looks(queue)

    def receive() -> Any:
        with queue.receive(wait=PATIENCE) as message:
            return message.payload

    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(receive)
        until(lambda: looks() > 0, "somebody waits")
        yield future
        assert future.result(PATIENCE) is not None


def count_looks(queue: Queue) -> Callable[[], int]:
    """Counts how often it was asked when the next message comes."""
    engine, looks = queue._desk.engine, [0]
    look = engine.until_next

    def until_next(*args: Any) -> Any:
        found = look(*args)
        looks[0] += 1
        return found

    engine.until_next = until_next  # type: ignore[assignment, method-assign]
    return lambda: looks[0]


def push_in_a_transaction(place: Place, queue: Queue) -> None:
    with place.sa_engine().begin() as connection:
        queue.push("x", connection=connection)


def redrive(place: Place, queue: Queue) -> None:
    queue.redrive()


WAKES: dict[str, Callable[[Place, Queue], Any]] = {
    "push": lambda place, queue: queue.push("x"),
    "push_many": lambda place, queue: queue.push_many("xyz"),
    "push_many of many": lambda place, queue: queue.push_many(["x"] * 1500),
    "push_many with options": lambda place, queue: queue.push_many([NewMessage("x", key="k")]),
    "push in a transaction": push_in_a_transaction,
    "redrive": redrive,
}


@pytest.mark.parametrize("verb", WAKES)
def test_a_push_of_another_process_wakes(place: Place, queue: Queue, long_pauses: None, verb: str) -> None:
    other = place.open().queue("work")
    if verb == "redrive":
        other.push("x")
        claimed(other).fail("no", retry=False)
    with waiting(queue):
        WAKES[verb](place, other)


def test_what_is_given_back_wakes(place: Place, queue: Queue, long_pauses: None) -> None:
    other = place.open().queue("work")
    other.push("x")
    claim = claimed(other)
    with waiting(queue):
        claim.release()


def test_all_who_wait_are_woken(place: Place, queue: Queue, long_pauses: None) -> None:
    with waiting(queue), waiting(place.open().queue("work")), waiting(place.open().queue("work")):
        place.open().queue("work").push_many("xyz")


def test_a_message_that_is_due_later_is_waited_for(place: Place, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "PAUSES_WITH_BELL", LONG)
    monkeypatch.setattr(wait, "PAUSES", LONG)
    place.open().queue("work").push("x", delay=0.2)
    with waiting(queue):
        pass


def test_so_is_the_end_of_a_lease(place: Place, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "PAUSES_WITH_BELL", LONG)
    monkeypatch.setattr(wait, "PAUSES", LONG)
    other = place.open().queue("work")
    other.push("x")
    claimed(other, lease=0.2)
    with waiting(queue):
        pass


def test_looking_again_is_enough(place: Place, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bell that does not ring, as through PgBouncer in transaction mode."""
    monkeypatch.setattr("tablequeue.engines.bell.Bell.attend", lambda *args: True)
    with waiting(queue):
        place.open().queue("work").push("x")


def test_who_waits_looks_seldom(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, now = count_looks(queue), [0.0]
    monkeypatch.setattr(wait, "monotonic", lambda: now[0])

    def pass_time(seconds: float) -> None:
        """A time that passes as fast as it is waited for."""
        now[0] += seconds

    waiter = queue.waiter()
    monkeypatch.setattr(waiter._event, "wait", pass_time)
    with waiter:
        waiter.wait(600)
        before = looks()
        waiter.wait(60)
    longest = (wait.PAUSES if queue._desk.engine.wire is None else wait.PAUSES_WITH_BELL)[1]
    assert before < 600 / longest + 12
    assert looks() - before <= 60 / longest + 2


@only("postgresql")
def test_a_push_notifies_only_if_somebody_waits(place: Place, queue: Queue) -> None:
    listener = place.sa_engine().raw_connection().driver_connection
    assert listener is not None
    listener.autocommit = True
    listener.execute("listen tq_work")
    heard: list[Any] = []
    listener.add_notify_handler(heard.append)

    def notified() -> int:
        listener.execute("select 1")  # what was notified before comes with its answer
        found = len(heard)
        heard.clear()
        return found

    queue.push("x")
    queue.push_many("xy")
    assert notified() == 0
    other = place.open().queue("work")
    while claim := queue.pop():
        claim.complete()
    with waiting(other):
        queue.push("x")
        assert notified() == 1
    with other.waiter() as waiter:
        waiter.wait(0)
        with place.sa_engine().begin() as connection:
            queue.push_many(["x"] * 3, connection=connection)
            assert notified() == 0, "at the commit"
        assert notified() == 1, "one for all"
    queue.push("x")
    assert notified() == 0, "nobody waits any more"
    listener.close()


@only("postgresql")
def test_of_pushes_at_one_moment_one_notifies(place: Place, queue: Queue) -> None:
    with place.open().queue("work").waiter() as waiter:
        waiter.wait(0)
        engine = place.sa_engine()
        with engine.connect() as first, engine.connect() as second, engine.connect() as other:
            # All in the same hundredth of a second.
            ring = queue._desk.table.statement("ring").replace("statement_timestamp()", "timestamp '2026-01-01'")
            assert [each.exec_driver_sql(ring).scalar() for each in (first, second)] == [True, True]
            locks = "select count(*) from pg_locks where locktype = 'advisory' and mode = 'ExclusiveLock'"
            assert other.exec_driver_sql(locks).scalar() == 1, "the second leaves it to the first, which rings"


@only("sqlite")
def test_who_was_woken_in_vain_lingers(queue: Queue) -> None:
    with queue.waiter() as waiter:
        assert waiter.linger(wait.INFINITE) == 0, "not the first time"
        assert 0 < max(waiter.linger(wait.INFINITE) for _ in range(20)) <= wait.LINGER[1]
        assert waiter.linger(0) == 0, "not longer than one wanted to wait"
        waiter.found()
        assert waiter.linger(wait.INFINITE) == 0


@only("mariadb", "postgresql")
def test_one_look_is_for_all_queues_that_somebody_waits_for(db: Database, queue: Queue) -> None:
    others = [db.create_queue(name) for name in ("here", "there")]
    runner = queue._desk.runner
    wire = Poll(runner._hold())
    for each in (queue, *others):
        wire.attend(each._desk.table)
        each.push("x")
    wire.leave(queue._desk.table)
    assert [*(wire.hear() or ())] == ["here", "there"]
    others[0].pop()
    assert [*(wire.hear() or ())] == ["there"]
    runner._discard(wire.held)


@only("mariadb")
def test_those_who_come_and_go_do_not_put_the_look_off(db: Database, queue: Queue) -> None:
    runner, busy = queue._desk.runner, db.create_queue("busy")
    wire = Poll(runner._hold())
    wire.attend(queue._desk.table)
    queue.push("x")
    with ThreadPoolExecutor(1) as threads:
        heard = threads.submit(wire.hear)
        while not heard.done():
            wire.attend(busy._desk.table)
        assert [*(heard.result() or ())] == ["work"]
    runner._discard(wire.held)


def test_time_until_the_next(queue: Queue) -> None:
    engine, table, run = queue._desk.engine, queue._desk.table, queue._desk.runner.run

    def due() -> Any:
        return run(engine.until_next, table, {"now": queue._desk.time(datetime(2040, 1, 1, tzinfo=UTC))})

    assert due() is None or due() > 1e9
    queue.push("x", due=datetime(2040, 1, 1, 0, 1, tzinfo=UTC))
    assert float(due()) == 60
    queue.push("x", now=datetime(2039, 1, 1, tzinfo=UTC))
    assert float(due()) == 0
    assert queue.pop(lease=30, now=datetime(2040, 1, 1, tzinfo=UTC))
    assert float(due()) == 30


def test_an_async_consumer_is_woken(place: Place, queue: Queue, long_pauses: None) -> None:
    looked = Event()
    look = AsyncWaiter.wait

    async def wait_for(self: AsyncWaiter, limit: float) -> None:
        waiting = asyncio.ensure_future(look(self, limit))
        while not self._waiter._pause:
            await asyncio.sleep(0.001)
        looked.set()
        await waiting

    async def receive() -> Any:
        async with await tablequeue.aio.connect(place.url, schema=place.schema) as database:
            work = await database.queue("work")
            async with work.receive(wait=PATIENCE) as message:
                return message.payload

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as threads:
        patch.setattr(AsyncWaiter, "wait", wait_for)
        received = threads.submit(asyncio.run, receive())
        assert looked.wait(PATIENCE)
        queue.push("x")
        assert received.result(PATIENCE) == "x"
