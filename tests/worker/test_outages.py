"""A worker whose database is away or locked, also for so long that other consumers get its messages."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

import pytest

from tablequeue import Claim, Database
from tablequeue.ext import context_of, waiter_of
from tablequeue.model import pacing
from tablequeue.verbs import schedule
from tablequeue.worker import Finished, Handler, Outcome, Worker, worker
from tablequeue.worker.health import health
from tablequeue.worker.heartbeat import Heartbeat
from tablequeue.worker.schedule import RETRY, Schedule, Scheduler
from tests.servers import Place, Server, only
from tests.support import counts, found
from tests.test_crashes import own_kind, own_place, own_server  # noqa: F401  (fixtures)
from tests.worker.support import PATIENCE, until, working


def of(function: Any, **options: Any) -> Worker:
    one = Worker(maximum=options.pop("maximum", 1), shutdown_timeout=PATIENCE)
    one.add(Handler("work", function, **options))
    return one


class ExpiringHandler:
    """A handler for prefetched messages whose leases expire while it waits, so that another consumer gets them."""

    def __init__(self, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Heartbeat, "_extend", lambda *args: None)
        self.queue = db.create_queue("work", lease=0.3)
        self.queue.push_many([*["quick"] * 200, "wait", *["quick"] * 200])
        self.begun, self.go = Event(), Event()
        self.handled: list[int] = []

    def handle(self, message: Claim) -> None:
        self.handled.append(message.id)
        if message.payload == "wait":
            self.begun.set()
            assert self.go.wait(PATIENCE)

    def held(self) -> set[int]:
        return {message.id for message in self.queue.peek(1000, state="in_progress")}

    def others_get_all(self, place: Place) -> set[int]:
        """Complete all messages of the worker in another consumer; return their ids but that of the running handler."""
        assert self.begun.wait(PATIENCE)
        until(lambda: min(held := self.held()) == self.handled[-1] and len(held) > 1, "messages are prefetched")
        held, got = self.held(), set[int]()
        other = place.open().queue("work")
        with waiter_of(other) as waiter:
            while held - got:
                waiter.wait(1)
                messages = other.pop_many(len(held))
                other.complete_many(messages)
                got.update(message.id for message in messages)
        return got - {self.handled[-1]}


def test_what_others_have_is_not_begun(place: Place, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    expiring = ExpiringHandler(db, monkeypatch)
    one = of(expiring.handle)
    with working(one, db):
        got = expiring.others_get_all(place)
        before = len(expiring.handled)  # on a slow machine also messages that others got when their lease had expired
        expiring.go.set()
        until(lambda: not {"ready", "in_progress"} & counts(expiring.queue).keys(), "the rest is handled")
    assert got
    assert not got.intersection(expiring.handled[before:])


def test_what_others_have_is_not_given_back(
    place: Place, db: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tablequeue.worker")
    expiring = ExpiringHandler(db, monkeypatch)
    one = of(expiring.handle)
    with working(one, db):  # which raises what `run` does
        expiring.others_get_all(place)
        one.stop()
        until(lambda: "stopping: 1 calls" in caplog.text, "nothing more is begun")
        expiring.go.set()


@only("postgresql", "mariadb", "mssql")
def test_a_handler_that_locks_its_message_does_not_keep_the_leases_of_others(db: Database) -> None:
    queue = db.create_queue("work", lease=1)
    locked, go = Event(), Event()

    def handle(message: Claim) -> Outcome | None:
        if message.payload == "other":
            assert go.wait(PATIENCE)
            return None
        with db.engine.begin() as connection:
            message.complete(connection=connection)
            locked.set()
            assert go.wait(PATIENCE)
        return Finished()

    other = queue.push("other")
    queue.push("locks")
    with working(of(handle, maximum=2), db):
        assert locked.wait(PATIENCE)
        popped_at = found(queue, other).popped_at
        assert popped_at
        late = popped_at + timedelta(seconds=3)
        until(lambda: (found(queue, other).lease_until or popped_at) > late, "the other's lease goes on")
        go.set()
        until(lambda: counts(queue) == {"finished": 2}, "both end")
    assert {message.attempts for message in queue.history()} == {1}


def test_a_worker_stops_while_the_server_is_down(
    own_server: Server,  # noqa: F811
    own_place: Place,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "CLOSE_TIMEOUT", 0.1)
    queue = own_place.open().create_queue("work", lease=1)
    queue.push_many([*"abc"])
    begun, go = Event(), Event()

    def handle(message: Claim) -> None:
        begun.set()
        go.wait(PATIENCE)

    one = of(handle)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(one.run, own_place.open())
        assert begun.wait(PATIENCE)
        own_server.kill()
        try:
            go.set()
            one.stop()
            assert running.result(PATIENCE) == {}
            assert not one.abandoned, "its handler has ended"
        finally:
            own_server.start()
    queue = own_place.open().queue("work")
    with waiter_of(queue) as waiter:  # wait for the end of the leases
        while "finished" not in counts(queue) or len(counts(queue)) > 1:
            waiter.wait(1)
            queue.complete_many(queue.pop_many(3))
    assert counts(queue) == {"finished": 3}


def test_a_worker_goes_on_when_the_server_is_back(
    own_server: Server,  # noqa: F811
    own_place: Place,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pacing, "BACKOFF", (0.01, 0.1))
    queue = own_place.open().create_queue("work", lease=1)
    queue.push_many(range(50))
    begun = Event()
    one = of(lambda message: begun.set(), maximum=4)
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(one.run, own_place.open())
        for _ in range(3):
            assert begun.wait(PATIENCE)
            begun.clear()
            own_server.kill()
            own_server.start()
            queue = own_place.open().queue("work")
            queue.push_many(range(50))
        until(lambda: counts(queue) == {"finished": 200}, "all are handled")
        one.stop()
        assert running.result(PATIENCE) == {"completed": 200}


def test_a_worker_without_its_database_lives_and_is_not_ready(
    own_server: Server,  # noqa: F811
    own_place: Place,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tablequeue.observe.health.FRESH", 0)
    own_place.open().create_queue("work")
    one, database = of(lambda message: None), own_place.open()
    told = health(one, database)

    def statuses() -> list[int]:
        answers = [told.answer(path) for path in ("/healthz", "/readyz", "/metrics")]
        return [answer.status for answer in answers if answer]

    with working(one, database):
        until(lambda: one.loads, "it has opened its queues")
        assert statuses() == [200, 200, 200]
        own_server.kill()
        try:
            until(lambda: statuses() == [200, 503, 200], "it is not ready")
            metrics = told.answer("/metrics")
            assert metrics
            assert "tablequeue_connected 0.0\n" in metrics.body
        finally:
            own_server.start()
        until(lambda: statuses() == [200, 200, 200], "it is ready again")


def test_the_scheduler_goes_on_when_the_server_is_back(
    own_server: Server,  # noqa: F811
    own_place: Place,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    db = own_place.open()
    queue = db.create_queue("work")
    minutely = Schedule("minutely", "work", "* * * * *", "tick")
    # As if it had last been due then.
    schedule.state(
        context_of(queue), minutely.name, schedule.line_of("work", "* * * * *", "UTC"), datetime(2020, 1, 1, tzinfo=UTC)
    )
    scheduler = Scheduler(db, [])
    last = Schedule.last

    def fall(one: Schedule, now: datetime) -> datetime:
        own_server.kill()  # just before the push
        return last(one, now)

    monkeypatch.setattr(Schedule, "last", fall)
    try:
        assert scheduler._push(minutely) == RETRY
    finally:
        monkeypatch.setattr(Schedule, "last", last)
        own_server.start()
    scheduler._push(minutely)
    assert [message.payload for message in queue.pop_many(10)] == ["tick"]
