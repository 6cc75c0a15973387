"""Consumers survive whatever a handler does: its message has the error, and other messages are handled."""

from __future__ import annotations

import signal
import threading
from threading import Event
from typing import Any

import pytest

from tablequeue import Backoff, Claim, Database, Queue, Rate
from tablequeue.errors import BadInput
from tablequeue.worker import Handler, Worker
from tests.servers import only
from tests.support import counts, found, refuses
from tests.worker import handlers, hostile
from tests.worker.support import PATIENCE, until, working

# The effect of a handler on its consumer does not depend on the engine.
pytestmark = only("sqlite")

CONSUMERS: dict[str, tuple[dict[str, Any], Any]] = {
    "threads": ({}, hostile.handle),
    "tasks": ({}, hostile.handle_async),
    "processes": ({"processes": True}, hostile.handle),
}


@pytest.fixture
def queue(db: Database) -> Queue:
    return db.create_queue("work", backoff=Backoff(base=500, cap=500))


def of(function: Any, **options: Any) -> Worker:
    worker = Worker(maximum=options.pop("maximum", 1), shutdown_timeout=options.pop("shutdown_timeout", PATIENCE))
    worker.add(Handler("work", function, **options))
    return worker


def errors(queue: Queue, id: int) -> list[str]:
    return [one.error for one in found(queue, id).errors]


@pytest.mark.parametrize("consumers", CONSUMERS)
def test_whatever_a_handler_does(db: Database, queue: Queue, consumers: str) -> None:
    words = [word for misdeed in hostile.MISDEEDS for word in (misdeed, "nothing")]
    ids = dict(zip(words, queue.push_many(words), strict=True))
    options, function = CONSUMERS[consumers]
    n = len(hostile.MISDEEDS)
    assert of(function, **options).run(db, drain=True) == {"completed": n, "scheduled": n}
    for word, (_, said) in hostile.MISDEEDS.items():
        (error,) = errors(queue, ids[word])
        assert said in error, word


@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize("timeout", [None, PATIENCE])
@pytest.mark.parametrize("consumers", CONSUMERS)
def test_a_context_variable_is_set_for_one_call(
    db: Database, queue: Queue, consumers: str, timeout: float | None, batch: int | None
) -> None:
    ids = queue.push_many([*"abcd"])
    function = handlers.see_tenant_async if consumers == "tasks" else handlers.see_tenant
    of(function, timeout=timeout, batch=batch, **CONSUMERS[consumers][0]).run(db, drain=True)
    assert [errors(queue, id) for id in ids] == [["nobody"]] * 4


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (hostile.stay, "took longer than its time-out"),
        (hostile.stay_async, "took longer than its time-out"),
        (hostile.turn, "ValueError: turned"),
        (hostile.turn_async, "ValueError: turned"),
    ],
)
def test_a_time_out_that_is_caught(db: Database, queue: Queue, function: Any, said: str) -> None:
    ids = queue.push_many([*"ab"])
    of(function, timeout=0.05).run(db, drain=True)
    for id in ids:
        (error,) = errors(queue, id)
        assert said in error


@pytest.mark.parametrize(
    ("function", "result"),
    [
        (hostile.cancel_itself, {"completed": 1, "scheduled": 2}),
        (hostile.exit_in_another_task, {"scheduled": 3}),
        (hostile.stop_the_loop, {"completed": 3}),
        (hostile.Called(), {"completed": 3}),
    ],
)
def test_async_handlers_that_turn_on_their_loop(
    db: Database, queue: Queue, function: Any, result: dict[str, int]
) -> None:
    queue.push_many(["at once", "in the end", "at once"])
    assert of(function).run(db, drain=True) == result


def test_a_loop_that_is_kept_from_going_on_does_not_keep_the_worker(db: Database, queue: Queue) -> None:
    queue.push_many([*"abc"])
    begun, go = Event(), Event()

    async def block(message: Claim) -> None:
        begun.set()
        go.wait(PATIENCE)

    def end() -> None:
        until(lambda: counts(queue) == {"ready": 3}, "what was not begun is given back, and what was has failed")
        go.set()

    worker = of(block, shutdown_timeout=0.05)
    ending = threading.Thread(target=end)
    with working(worker, db):
        assert begun.wait(PATIENCE)
        ending.start()
    ending.join()
    assert worker.abandoned


# -- drain, and the number of consumers --------------------------------------------------------------------------------


def test_a_drain_ends_when_no_handler_can_push_to_another_queue(db: Database, queue: Queue) -> None:
    """Each message goes through three queues, against the order of their handlers, and back to the first."""
    queues = {name: db.create_queue(name) for name in ("first", "second", "third")}
    worker = Worker()
    for name in ("third", "second", "first"):

        def handle(message: Claim, name: str = name) -> None:
            following = {"first": "second", "second": "third", "third": "first"}[name]
            if message.payload:
                queues[following].push(message.payload - 1)

        worker.add(Handler(name, handle))
    queues["first"].push_many([6] * 10)
    assert worker.run(db, drain=True) == {"completed": 70}


def test_a_drain_does_not_end_while_a_limit_holds_messages_back(db: Database) -> None:
    worker = Worker()
    running: list[int] = []

    def handle(message: Claim) -> None:
        running.append(message.id)
        assert len(running) <= 2, "two places"
        running.remove(message.id)

    db.create_queue("placed", concurrency=2, max_attempts=1).push_many([1] * 20)
    db.create_queue("rated", rate=Rate(50)).push_many([1] * 5)
    worker.add(Handler("placed", handle, consumers=4))
    worker.add(Handler("rated", lambda message: None))
    assert worker.run(db, drain=True) == {"completed": 25}


class Slow(threading.Thread):
    """A thread that is alive for a while after its function has returned."""

    def run(self) -> None:
        super().run()
        Event().wait(0.3)


def test_a_drain_ends_although_a_thread_that_has_ended_is_alive(
    db: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tablequeue.worker.worker.Thread", Slow)
    assert of(lambda message: None).run(db, drain=True) == {}


def test_a_drain_of_schedules_alone_ends(db: Database) -> None:
    worker = Worker()
    worker.every("* * * * *", "work", 1)
    assert worker.run(db, drain=True) == {}


def test_fewer_consumers_than_queues_starve_none(db: Database, queue: Queue) -> None:
    other = db.create_queue("other")
    worker = Worker(maximum=1)
    served = Event()

    def go_on(message: Claim) -> None:
        if not served.is_set():
            queue.push("again")

    worker.add(Handler("work", go_on))
    worker.add(Handler("other", lambda message: served.set()))
    queue.push_many(["x"] * 10)
    with working(worker, db):
        until(lambda: counts(queue).get("finished", 0) > 100, "one queue has the consumer")
        other.push_many([*"abc"])
        assert served.wait(PATIENCE)


def test_consumers_that_are_to_go_count(db: Database, queue: Queue) -> None:
    """A handler that never ends keeps its consumer, however often another queue needs one."""
    other = db.create_queue("other")
    go, running = Event(), threading.Semaphore(0)

    def stay(message: Claim) -> None:
        running.release()
        go.wait(PATIENCE)

    worker = Worker(maximum=2)
    worker.add(Handler("work", stay))
    worker.add(Handler("other", lambda message: None))
    queue.push_many(range(20))
    with working(worker, db):
        for n in range(4):
            other.push(n)
            until(lambda n=n: counts(other).get("finished") == n + 1, "the other queue is served")  # type: ignore[misc]
            until(lambda: worker.consumers["other"] == 0, "its consumer has gone")
        begun = sum(running.acquire(blocking=False) for _ in range(20))
        go.set()
    assert begun <= 2


def test_a_worker_works_once_at_a_time(db: Database, queue: Queue) -> None:
    begun, go = Event(), Event()

    def handle(message: Claim) -> None:
        begun.set()
        go.wait(PATIENCE)

    worker = of(handle)
    queue.push("x")
    with working(worker, db):
        assert begun.wait(PATIENCE)
        refuses(BadInput, worker.run, db)
        go.set()
    assert worker.run(db, drain=True) == {}


def test_signals_that_python_had_not_set(db: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT)
    set_signal = signal.signal
    monkeypatch.setattr(signal, "signal", lambda *args: set_signal(*args) and None)
    try:
        of(hostile.handle).run(db, drain=True)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL
    finally:
        set_signal(signal.SIGINT, before)
