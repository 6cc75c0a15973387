"""Consumers that wait are woken by a push, or find the message by polling."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from copy import copy
from datetime import UTC, datetime
from threading import Event
from typing import Any

import pytest

import tablequeue.aio
from tablequeue import ALL, Claim, Database, NewMessage, Queue
from tablequeue.aio.wait import AsyncWaiter
from tablequeue.engines.notifier import Listener
from tablequeue.engines.poll import Poll
from tablequeue.ext import context_of, waiter_of
from tablequeue.verbs import wait
from tests.servers import Kind, Place, only
from tests.support import claimed
from tests.worker.support import PATIENCE, until

# Pauses so long that a test that waits for them fails.
LONG = (PATIENCE * 2, PATIENCE * 2)


@pytest.fixture
def queue(db: Database) -> Queue:
    return db.create_queue("work", payload="text", lease=3600)


@pytest.fixture
def long_pauses(monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    if kind.engine_class.listener is None:
        pytest.skip("this engine has no wake-ups")
    monkeypatch.setattr(wait, "PAUSES_WITH_NOTIFIER", LONG)


@contextmanager
def waiting(queue: Queue) -> Iterator[Future[Any]]:
    """Wait for a message in a thread, which sleeps when the block begins, and complete the message."""
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
    """Counts the calls that ask when the next message is due."""
    engine, looks = context_of(queue).engine, [0]
    look = engine.reads.until_next

    def until_next(*args: Any) -> Any:
        found = look(*args)
        looks[0] += 1
        return found

    reads = copy(engine.reads)
    reads.until_next = until_next  # type: ignore[method-assign]
    engine.reads = context_of(queue).reads = reads  # type: ignore[misc]  # of this engine alone
    return lambda: looks[0]


def push_in_a_transaction(place: Place, queue: Queue) -> None:
    with place.sa_engine().begin() as connection:
        queue.push("x", connection=connection)


def redrive(place: Place, queue: Queue) -> None:
    queue.redrive(ALL)


WAKES: dict[str, Callable[[Place, Queue], Any]] = {
    "push": lambda place, queue: queue.push("x"),
    "push_many": lambda place, queue: queue.push_many([*"xyz"]),
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


GIVEN_BACK: dict[str, Callable[[Claim, Any], Any]] = {
    "released": lambda claim, connection: claim.release(connection=connection),
    "failed": lambda claim, connection: claim.fail("no", retry_in=0, connection=connection),
    "due soon": lambda claim, connection: claim.fail("no", retry_in=0.1, connection=connection),
}


@pytest.mark.parametrize("within", [False, True], ids=["alone", "in a transaction"])
@pytest.mark.parametrize("verb", GIVEN_BACK)
def test_what_is_given_back_wakes(place: Place, queue: Queue, long_pauses: None, verb: str, within: bool) -> None:
    other = place.open().queue("work")
    other.push("x")
    claim = claimed(other)
    with waiting(queue):
        if within:
            with place.sa_engine().begin() as connection:
                GIVEN_BACK[verb](claim, connection)
        else:
            GIVEN_BACK[verb](claim, None)


def test_the_next_of_a_group_wakes(place: Place, db: Database, long_pauses: None) -> None:
    """It becomes ready when another process completes the message before it."""
    queue = db.create_queue("teams", payload="text", groups=True, lease=3600)
    queue.push_many([*"xy"], group="a")
    other = place.open().queue("teams")
    claim = claimed(other)
    with waiting(queue):
        claim.complete()


def test_a_process_with_many_files_is_woken(
    place: Place, queue: Queue, long_pauses: None, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the descriptors of its listener are above those that select() takes."""
    listener, errors = kind.engine_class.listener, []
    assert listener is not None
    listen = listener.listen

    def noting(self: Listener) -> Any:
        try:
            return listen(self)
        except Exception as error:
            errors.append(error)
            raise

    monkeypatch.setattr(listener, "listen", noting)
    with many_files(), waiting(queue):
        place.open().queue("work").push("x")
    assert not errors


@contextmanager
def many_files() -> Iterator[None]:
    """Take the descriptors up to 1,023."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], min(1500, before[1])), before[1]))
    files = [os.open(os.devnull, os.O_RDONLY)]
    while files[-1] < 1024:
        files.append(os.dup(files[0]))
    try:
        yield
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


# -- pushes in transactions that stay open -----------------------------------------------------------------------------


def test_a_push_that_began_before_anybody_waited(place: Place, queue: Queue, long_pauses: None, kind: Kind) -> None:
    if not kind.side_by_side:
        pytest.skip("nothing can be read while a transaction writes")
    other = place.open().queue("work")
    with place.sa_engine().begin() as connection:
        other.push("x", connection=connection)
        with waiting(queue) as received:
            assert not received.done()
            connection.commit()


def test_a_push_beside_one_that_does_not_commit(place: Place, queue: Queue, long_pauses: None, kind: Kind) -> None:
    """Of simultaneous pushes one notifies for all, and not one whose transaction may stay open."""
    if not kind.side_by_side:
        pytest.skip("two transactions cannot push at the same moment")
    other = place.open().queue("work")
    with place.sa_engine().begin() as connection, waiting(queue):
        other.push("first", connection=connection)
        other.push("second")
        other.push("third")


@only("postgresql")
@pytest.mark.parametrize("waited_for", [False, True])
def test_a_push_in_a_transaction_that_is_prepared(
    place: Place, queue: Queue, long_pauses: None, waited_for: bool
) -> None:
    other = place.open().queue("work")

    def push() -> None:
        with place.sa_engine().connect() as connection:
            transaction = connection.begin_twophase()
            other.push("x", connection=connection)
            claim = claimed(other, connection=connection)
            claim.release(connection=connection)
            transaction.prepare()
            transaction.commit()

    with waiting(queue) if waited_for else nullcontext():
        push()
    assert waited_for or claimed(queue).payload == "x"


def test_all_waiting_consumers_are_woken(place: Place, queue: Queue, long_pauses: None) -> None:
    with waiting(queue), waiting(place.open().queue("work")), waiting(place.open().queue("work")):
        place.open().queue("work").push_many([*"xyz"])


def test_a_message_that_is_due_later_is_waited_for(place: Place, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "PAUSES_WITH_NOTIFIER", LONG)
    monkeypatch.setattr(wait, "PAUSES", LONG)
    place.open().queue("work").push("x", delay=0.2)
    with waiting(queue):
        pass


def test_so_is_the_end_of_a_lease(place: Place, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "PAUSES_WITH_NOTIFIER", LONG)
    monkeypatch.setattr(wait, "PAUSES", LONG)
    other = place.open().queue("work")
    other.push("x")
    claimed(other, lease=0.2)
    with waiting(queue):
        pass


def test_polling_is_enough(place: Place, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notifier without notifications, as behind PgBouncer in transaction mode."""
    monkeypatch.setattr("tablequeue.engines.notifier.Notifier.attend", lambda *args: True)
    with waiting(queue):
        place.open().queue("work").push("x")


def test_who_waits_looks_seldom(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, now = count_looks(queue), [0.0]
    monkeypatch.setattr(wait, "monotonic", lambda: now[0])

    def pass_time(seconds: float) -> None:
        """A clock that passes as fast as the test waits for it."""
        now[0] += seconds

    waiter = waiter_of(queue)
    monkeypatch.setattr(waiter._event, "wait", pass_time)
    with waiter:
        waiter.wait(600)
        before = looks()
        waiter.wait(60)
    longest = (wait.PAUSES if context_of(queue).engine.listener is None else wait.PAUSES_WITH_NOTIFIER)[1]
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
        listener.execute("select 1")  # earlier notifications arrive with its answer
        found = len(heard)
        heard.clear()
        return found

    queue.push("x")
    queue.push_many([*"xy"])
    assert notified() == 0
    other = place.open().queue("work")
    while claim := queue.pop():
        claim.complete()
    with waiting(other):
        queue.push("x")
        assert notified() == 1
    with waiter_of(other) as waiter:
        waiter.wait(0)
        with place.sa_engine().begin() as connection:
            queue.push_many(["x"] * 3, connection=connection)
            assert notified() == 1, "apart from the transaction, that one is coming"
        assert notified() == 0
    queue.push("x")
    assert notified() == 0, "nobody waits any more"
    listener.close()


@only("postgresql")
def test_of_pushes_at_one_moment_one_notifies(place: Place, queue: Queue) -> None:
    with waiter_of(place.open().queue("work")) as waiter:
        waiter.wait(0)
        engine = place.sa_engine()
        with engine.connect() as first, engine.connect() as second, engine.connect() as other:
            # All within a hundredth of a second.
            notify = (
                context_of(queue).table.statement("notify").replace("statement_timestamp()", "timestamp '2026-01-01'")
            )
            params = {"within": False}
            assert [each.exec_driver_sql(notify, params).scalar() for each in (first, second)] == [False, False]
            locks = "select count(*) from pg_locks where locktype = 'advisory' and mode = 'ExclusiveLock'"
            assert other.exec_driver_sql(locks).scalar() == 1, "the second leaves it to the first, which notifies"


@only("sqlite")
def test_a_wasted_wake_up_makes_the_next_one_back_off(queue: Queue) -> None:
    with waiter_of(queue) as waiter:
        assert waiter.back_off(wait.INFINITE) == 0, "not the first time"
        assert 0 < max(waiter.back_off(wait.INFINITE) for _ in range(20)) <= wait.BACK_OFF[1]
        assert waiter.back_off(0) == 0, "not longer than one wanted to wait"
        waiter.found()
        assert waiter.back_off(wait.INFINITE) == 0


@only("mariadb", "postgresql")
def test_one_poll_covers_all_queues_that_consumers_wait_for(db: Database, queue: Queue) -> None:
    others = [db.create_queue(name) for name in ("here", "there")]
    runner = context_of(queue).runner
    listener = Poll(runner.pool.connect())
    for each in (queue, *others):
        listener.attend(context_of(each).table)
        each.push("x")
    listener.leave(context_of(queue).table)
    assert [*(listener.listen() or ())] == ["tq_here", "tq_there"]
    others[0].pop()
    assert [*(listener.listen() or ())] == ["tq_there"]
    runner.pool.discard(listener.connection)


@only("mariadb")
def test_consumers_that_come_and_go_do_not_postpone_the_poll(db: Database, queue: Queue) -> None:
    runner, busy = context_of(queue).runner, db.create_queue("busy")
    listener = Poll(runner.pool.connect())
    listener.attend(context_of(queue).table)
    queue.push("x")
    with ThreadPoolExecutor(1) as threads:
        heard = threads.submit(listener.listen)
        while not heard.done():
            listener.attend(context_of(busy).table)
        assert [*(heard.result() or ())] == ["tq_work"]
    runner.pool.discard(listener.connection)


def test_time_until_the_next(queue: Queue) -> None:
    engine, table, run = context_of(queue).engine, context_of(queue).table, context_of(queue).runner.run

    def due() -> Any:
        return run(
            engine.reads.until_next, table, {"now": context_of(queue).time(datetime(2040, 1, 1, tzinfo=UTC))}
        ).seconds

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
