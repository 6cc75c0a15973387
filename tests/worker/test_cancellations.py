"""Cancels of messages that a worker has: their handlers are told, interrupted where that is possible, not retried."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event
from typing import Any

import pytest

from tablequeue import Cancelled, Claim, Database, Queue
from tablequeue.worker import Handler, Worker, cancellations
from tablequeue.worker.pool import Assignment, ThreadPool, TimeLimit
from tests.servers import only
from tests.support import counts
from tests.worker import handlers
from tests.worker.support import PATIENCE, until, working

# The kind of consumers does not depend on the engine.
pytestmark = only("sqlite")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancellations, "INTERVAL", 0.001)


@pytest.fixture
def queue(db: Database) -> Queue:
    return db.create_queue("work", max_attempts=5)


def cancelled_while(
    db: Database, queue: Queue, handler: Callable[..., Any], n: int = 1, told: int = 1, **options: Any
) -> Queue:
    """Push messages and cancel the first ones when all are in progress. Return when all have ended."""
    worker = Worker(minimum=1, maximum=1, shutdown_timeout=PATIENCE)
    worker.add(Handler("work", handler, **options))
    ids = queue.push_many(["wait"] * n)
    with working(worker, db):
        until(lambda: len(queue.peek(10, state="in_progress")) == n, "they are in progress")
        assert queue.cancel(ids[:told]).in_progress == (*ids[:told],)
        until(lambda: len(queue.history()) == n, "all have ended")
    return queue


def states(queue: Queue) -> list[tuple[str, int, bool]]:
    """Return of each message its state, its attempts, and whether an error tells that it was cancelled."""
    return [
        (message.state, message.attempts, any("cancelled" in error.error for error in message.errors))
        for message in queue.history()
    ]


def test_a_handler_in_a_thread_that_looks_stops(db: Database, queue: Queue) -> None:
    def handle(message: Claim) -> None:
        while True:
            message.raise_if_cancelled()

    assert states(cancelled_while(db, queue, handle)) == [("cancelled", 1, True)]


def test_a_worker_looks_for_the_handler(db: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler asks nobody: the worker has noted it."""

    def handle(message: Claim) -> None:
        while not getattr(message, "_cancelled", False):
            pass
        raise Cancelled

    assert states(cancelled_while(db, queue, handle)) == [("cancelled", 1, True)]


def test_an_async_handler_is_interrupted(db: Database, queue: Queue) -> None:
    async def handle(message: Claim) -> None:
        await asyncio.sleep(PATIENCE)

    assert states(cancelled_while(db, queue, handle)) == [("cancelled", 1, True)]


@pytest.mark.parametrize("timeout", [None, PATIENCE])
def test_an_async_handler_that_completes_anyway_has_completed(
    db: Database, queue: Queue, timeout: float | None
) -> None:
    async def handle(message: Claim) -> None:
        try:
            await asyncio.sleep(PATIENCE)
        except asyncio.CancelledError:
            return

    assert states(cancelled_while(db, queue, handle, timeout=timeout)) == [("finished", 1, False)]


def test_the_consumer_of_an_interrupted_handler_goes_on(db: Database, queue: Queue) -> None:
    async def handle(message: Claim) -> None:
        if message.payload == "wait":
            await asyncio.sleep(PATIENCE)

    worker = Worker(minimum=1, maximum=1, shutdown_timeout=PATIENCE)
    worker.add(Handler("work", handle))
    with working(worker, db):
        id = queue.push("wait")
        until(lambda: queue.peek(state="in_progress"), "it is in progress")
        queue.push("next")
        queue.cancel(id)
        until(lambda: len(queue.history()) == 2, "both have ended")
    assert [message.state for message in queue.history()] == ["finished", "cancelled"]


def test_a_thread_with_a_time_out_is_interrupted(db: Database, queue: Queue) -> None:
    assert states(cancelled_while(db, queue, handlers.never_end, timeout=PATIENCE)) == [("cancelled", 1, True)]


def test_a_call_that_is_about_to_begin_is_interrupted_later(
    db: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt, enter, tried = ThreadPool.interrupt, TimeLimit.__enter__, Event()

    def note(pool: ThreadPool, assignment: Assignment) -> None:
        interrupt(pool, assignment)
        tried.set()

    def wait(limit: TimeLimit) -> TimeLimit:
        tried.wait(PATIENCE)
        return enter(limit)

    monkeypatch.setattr(ThreadPool, "interrupt", note)
    monkeypatch.setattr(TimeLimit, "__enter__", wait)
    assert states(cancelled_while(db, queue, handlers.never_end, timeout=PATIENCE)) == [("cancelled", 1, True)]


def test_an_interrupt_at_the_end_of_a_call_leaves_no_time_limit_behind(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the thread would be interrupted later, in the next call, or while it waits for one."""
    end, limits = TimeLimit.end, list[TimeLimit]()

    def arrive(limit: TimeLimit) -> None:
        limits.append(limit)
        if len(limits) == 1:
            raise Cancelled
        end(limit)

    monkeypatch.setattr(TimeLimit, "end", arrive)
    owner: Any = None
    pool = ThreadPool(Handler("work", handlers.never_end, timeout=PATIENCE), owner)
    with pytest.raises(Cancelled), pool._limited(Assignment([], 0, 0)):
        pass
    (limit,) = {*limits}
    assert limit._timer.finished.is_set()
    assert limit._ended


def test_a_process_is_interrupted(db: Database, queue: Queue) -> None:
    done = cancelled_while(db, queue, handlers.never_end, processes=True)
    assert states(done) == [("cancelled", 1, True)]


def test_a_handler_that_does_not_look_and_fails_is_not_retried(db: Database, queue: Queue) -> None:
    told = Event()

    def handle(message: Claim) -> None:
        told.wait(PATIENCE)
        raise ValueError("its own words")

    worker = Worker(minimum=1, maximum=1, shutdown_timeout=PATIENCE)
    worker.add(Handler("work", handle))
    id = queue.push("wait")
    with working(worker, db):
        until(lambda: queue.peek(state="in_progress"), "it is in progress")
        queue.cancel(id)
        told.set()
        until(queue.history, "it has ended")
    assert states(queue) == [("cancelled", 1, False)]


def test_a_batch_is_interrupted_when_all_of_it_was_cancelled(db: Database, queue: Queue) -> None:
    async def handle(messages: list[Claim]) -> None:
        await asyncio.sleep(PATIENCE)

    done = cancelled_while(db, queue, handle, n=2, told=2, batch=2)
    assert states(done) == [("cancelled", 1, True)] * 2


def test_a_batch_of_which_some_were_cancelled_goes_on(db: Database, queue: Queue) -> None:
    async def handle(messages: list[Claim]) -> None:
        while not await asyncio.to_thread(lambda: messages[0].cancelled):
            pass

    assert counts(cancelled_while(db, queue, handle, n=2, told=1, batch=2)) == {"finished": 2}
    assert {message.state for message in queue.history()} == {"finished"}


def test_what_was_cancelled_is_counted(db: Database, queue: Queue) -> None:
    def handle(message: Claim) -> None:
        queue.cancel(message.id)
        message.raise_if_cancelled()

    queue.push("wait")
    worker = Worker()
    worker.add(Handler("work", handle))
    assert worker.run(db, drain=True) == {"cancelled": 1}


def test_cancelled_without_a_cancel_is_a_failure(db: Database, queue: Queue) -> None:
    def handle(message: Claim) -> None:
        raise Cancelled

    queue.push("wait")
    worker = Worker()
    worker.add(Handler("work", handle))
    assert worker.run(db, drain=True)["scheduled"] == 1
