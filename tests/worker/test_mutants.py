"""Mutants of the worker: each has one fault, and the check that the worker passes must notice it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from threading import Event
from typing import Any

import pytest

from tablequeue import Claim, Database, Queue
from tablequeue.engines.connection import Cursor
from tablequeue.engines.parts import Part
from tablequeue.engines.rows import ScheduleRow
from tablequeue.engines.schedules import Schedules
from tablequeue.engines.table import Statements, Table
from tablequeue.ext import waiter_of
from tablequeue.observe.health import Health
from tablequeue.worker import Worker, fetcher
from tablequeue.worker import schedule as worker_schedule
from tablequeue.worker.completer import Completer
from tablequeue.worker.fetcher import Fetcher
from tablequeue.worker.handler import Handler
from tablequeue.worker.health import health
from tablequeue.worker.heartbeat import Heartbeat
from tablequeue.worker.schedule import Schedule, push_due
from tests.support import counts
from tests.worker import handlers
from tests.worker.support import PATIENCE, until, working
from tests.worker.test_schedule import HOURLY, hours

Check = Callable[[Database, Queue], None]


def check_lease(db: Database, queue: Queue) -> None:
    """A handler that takes longer than the lease keeps its message."""
    first = Event()

    def handle(message: Claim) -> None:
        if not first.is_set():
            first.set()
            with waiter_of(queue) as waiter:
                waiter.wait(4 * queue.definition.lease)  # ends when a lease expires
            queue.pop()  # another consumer, which gets messages that nobody holds

    queue.push("x")
    worker = Worker(maximum=1)
    worker.handler(queue.name)(handle)
    with working(worker, db):
        assert first.wait(PATIENCE)
        worker.stop()
    assert [message.attempts for message in queue.history()] == [1]


def check_once(db: Database, queue: Queue) -> None:
    """Each due time is pushed once."""
    for hour in (0, 1, 1.5, 2, 2.5):
        push_due(db, HOURLY, hours(hour))
    assert counts(queue, now=hours(3)) == {"ready": 2}


def check_finished(db: Database, queue: Queue) -> None:
    """Handled messages are completed before the worker ends."""
    worker = Worker()
    worker.handler(queue.name)(lambda message: None)
    queue.push_many(range(50))
    worker.run(db, drain=True)
    assert counts(queue) == {"finished": 50}


def check_health(db: Database, queue: Queue) -> None:
    """A worker that drains is not ready and lives, and tells what it holds."""
    begun, go = Event(), Event()

    def handle(message: Claim) -> None:
        begun.set()
        assert go.wait(PATIENCE)

    queue.push("x")
    worker = Worker(maximum=1)
    worker.handler(queue.name)(handle)
    told = health(worker, db)
    with working(worker, db):
        try:
            assert begun.wait(PATIENCE)
            assert '"running": 1' in asked(told, "/readyz", 200)
            assert 'tablequeue_worker_messages{queue="work",state="running"} 1.0' in asked(told, "/metrics", 200)
            worker.stop()
            asked(told, "/readyz", 503)
            asked(told, "/healthz", 200)
            assert "tablequeue_stopping 1.0" in asked(told, "/metrics", 200)
        finally:
            go.set()


def asked(health: Health, path: str, status: int) -> str:
    answer = health.answer(path)
    assert answer is not None
    assert answer.status == status, answer.body
    return answer.body


def check_unfinished(db: Database, queue: Queue) -> None:
    """Nothing more is popped while messages that have ended wait too long to be finished."""
    finish, call = Event(), Completer._call_until_answered

    def finish_later(completer: Completer, *given: Any) -> None:
        assert finish.wait(PATIENCE)
        call(completer, *given)

    worker = Worker(maximum=1)
    worker.handler(queue.name)(lambda message: None)
    queue.push_many(range(50))

    def stands() -> bool:
        return any(one._behind or one.load().messages["ended"] == 50 for one in worker._fetchers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Completer, "_call_until_answered", finish_later)
        patch.setattr(fetcher, "UNFINISHED_FRACTION", 0)
        patch.setattr(fetcher, "MOST_PREFETCHED", 5)
        with working(worker, db, drain=True):
            until(stands, "the worker pops no more")
            left = queue.stats().ready
            finish.set()
            until(lambda: counts(queue) == {"finished": 50}, "it goes on")
    assert left


def check_context(db: Database, queue: Queue) -> None:
    """What a handler sets in a context variable is not there for the next message."""
    queue.push_many([*"ab"])
    worker = Worker(maximum=1)
    worker.handler(queue.name)(handlers.see_tenant)
    worker.run(db, drain=True)
    assert [one.error for message in queue.peek(state="scheduled") for one in message.errors] == ["nobody", "nobody"]


def check_changed(db: Database, queue: Queue) -> None:
    """A schedule whose expression changes is not due at a time before."""
    for cron, hour in (("0 9 * * *", 0), ("0 8 * * *", 20.5)):
        push_due(db, Schedule("daily", queue.name, cron, "report"), hours(hour))
    assert not queue.peek()


def check_names(db: Database, queue: Queue) -> None:
    """Schedules whose names differ by a blank are two."""
    for hour in (0, 1):
        for name in ("a", "a "):
            push_due(db, Schedule(name, queue.name, HOURLY.cron, name), hours(hour))
    assert [message.payload for message in queue.peek()] == ["a", "a "]


def check_ahead(db: Database, queue: Queue) -> None:
    """In the hour that is repeated, the next time is ahead."""
    now = datetime(2040, 10, 28, 1, 10, tzinfo=UTC)
    assert push_due(db, Schedule("nightly", queue.name, "30 2 * * *", "x", "Europe/Berlin"), now) > 0


def stripped(self: Part, cursor: Cursor, table: Statements, operation: str, params: dict[str, Any]) -> None:
    """Run the statements of schedules without the blanks at the end of a name, as a padded column compares them."""
    Part._run(self, cursor, table, operation, {**params, "name": params["name"].rstrip()})


def same_cron(self: Schedules, cursor: Cursor, table: Table, params: dict[str, Any]) -> ScheduleRow | None:
    row = self._row(cursor, table, "schedule_state", params)
    return row and ScheduleRow(row[0], row[1], params["cron"])


def nothing(*args: Any, **options: Any) -> None:
    """Do nothing, in place of a step."""


MUTANTS: dict[str, tuple[Check, Any, str, Any]] = {
    "a changed expression that nobody notes": (check_changed, Schedules, "schedule_state", same_cron),
    "names without their blanks": (check_names, Schedules, "_run", stripped),
    "a next time that has passed": (check_ahead, worker_schedule, "filter", lambda holds, times: times),
    "leases that nobody extends": (check_lease, Heartbeat, "_extend", staticmethod(nothing)),
    "a context that calls share": (check_context, Handler, "call", lambda self, claims: self.function(claims[0])),
    "a due time that is not remembered": (check_once, Schedules, "advance_schedule", lambda *args: True),
    "a worker that is ready while it stops": (check_health, Worker, "stopping", False),
    "a worker that forgets what it holds": (check_health, Fetcher, "assignments", lambda self: []),
    "completions that nobody waits for": (check_unfinished, Fetcher, "_finishes_late", lambda self: False),
    "completions that are forgotten": (check_finished, Completer, "_call_until_answered", nothing),
}


@pytest.fixture
def queue(db: Database) -> Queue:
    return db.create_queue("work", lease=0.5)


@pytest.mark.parametrize("name", MUTANTS)
def test_the_worker_passes(db: Database, queue: Queue, name: str) -> None:
    MUTANTS[name][0](db, queue)


@pytest.mark.parametrize("name", MUTANTS)
def test_the_mutant_does_not(db: Database, queue: Queue, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check, owner, step, fault = MUTANTS[name]
    monkeypatch.setattr(owner, step, fault, raising=False)
    with pytest.raises(AssertionError):
        check(db, queue)
