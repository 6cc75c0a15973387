"""Workers, on every engine and with every kind of consumer."""

from __future__ import annotations

import asyncio
import gc
import logging
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Event, Lock
from typing import Any

import pytest

from tablequeue import Backoff, Claim, Database, Queue
from tablequeue.aio import AsyncDatabase
from tablequeue.aio.threads import Threads
from tablequeue.errors import BadInput, QueueNotFound
from tablequeue.model.attempts import LONGEST_ERROR
from tablequeue.worker import Handler, Retry, Snooze, Worker, fetcher
from tablequeue.worker.handler import import_target
from tests.servers import KINDS, Place, only
from tests.support import claimed, counts, found, ids_of, refuses
from tests.worker import handlers
from tests.worker.support import PATIENCE, until, working

LEASE = timedelta(seconds=2)
# For each kind of consumer: its options, a handler that does what the message says, and one that never ends.
CONSUMERS: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "threads": ({}, handlers.by_payload, handlers.never_end),
    "tasks": ({}, handlers.by_payload_async, handlers.never_end_async),
    "processes": ({"processes": True, "maximum": 1}, handlers.by_payload, handlers.never_end),
}


# Processes only on SQLite: they take a second to start, and do not depend on the engine.
every_kind_of_consumers = pytest.mark.parametrize(
    ("kind", "consumers"),
    [
        (kind, consumers)
        for kind in KINDS
        for consumers in CONSUMERS
        if kind.name == "sqlite" or consumers != "processes"
    ],
    ids=lambda one: getattr(one, "name", one),
)


@pytest.fixture
def queue(db: Database) -> Queue:
    return db.create_queue("work", payload="text", max_attempts=3, backoff=Backoff(base=500, cap=500))


def of(function: Any, **options: Any) -> Worker:
    worker = Worker(maximum=options.pop("maximum", 4), shutdown_timeout=options.pop("shutdown_timeout", PATIENCE))
    worker.add(Handler("work", function, **options))
    return worker


def test_a_long_error_is_shortened_and_so_is_the_line_of_the_log(
    db: Database, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    (raises, says) = queue.push_many(["raises", "says"])

    def fails(message: Claim) -> Retry:
        if message.payload == "raises":
            raise ValueError("x" * 3_000_000)
        return Retry(error="y" * 3_000_000)

    of(fails).run(db, drain=True)
    for id in (raises, says):
        assert len(found(queue, id).errors[0].error) <= LONGEST_ERROR
    lines = [record.getMessage() for record in caplog.records if "failed and is" in record.getMessage()]
    assert len(lines) == 2
    assert max(map(len, lines)) <= LONGEST_ERROR


def test_what_asyncio_logs_of_a_task_that_nobody_awaits_is_shortened(
    db: Database, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    queue.push("work")

    async def fails() -> None:
        raise ValueError("x" * 3_000_000)

    async def leaves_a_task(message: Claim) -> None:
        await asyncio.wait({asyncio.ensure_future(fails())})

    of(leaves_a_task).run(db, drain=True)
    gc.collect()
    lines = [record.getMessage() for record in caplog.records if "never retrieved" in record.getMessage()]
    assert len(lines) == 1
    assert "ValueError" in lines[0]
    assert len(lines[0]) < 2 * LONGEST_ERROR


@every_kind_of_consumers
def test_each_message_becomes_what_its_handler_says(db: Database, queue: Queue, consumers: str) -> None:
    words = ["done", "value", "retry", "bury", "snooze", "raise", "exit", "finish"]
    ids = dict(zip(words, queue.push_many(words), strict=True))
    options, by_payload, _ = CONSUMERS[consumers]
    result = of(by_payload, **options).run(db, drain=True)
    assert result == {"completed": 2, "scheduled": 3, "dead": 1, "snoozed": 1}
    assert counts(queue) == {"finished": 3, "scheduled": 4, "dead": 1}
    assert {message.payload for message in queue.history()} == {"done", "value", "finish"}
    retried, buried, snoozed, raised, exited = (
        found(queue, ids[word]) for word in ("retry", "bury", "snooze", "raise", "exit")
    )
    assert (retried.attempts, retried.errors[0].error) == (1, "not yet")
    assert (buried.state, buried.attempts, buried.errors[0].error) == ("dead", 1, "no such address")
    assert (snoozed.attempts, snoozed.errors) == (0, ()), "not now is no failure"
    for message in (retried, snoozed):
        assert message.due_at
        assert message.due_at > message.pushed_at
    assert "ValueError: the handler's own words" in raised.errors[0].error
    assert "handlers.py" in raised.errors[0].error, "the traceback is kept"
    assert "SystemExit: 3" in exited.errors[0].error


@pytest.mark.parametrize("processes", [False, True])
@only("sqlite")
def test_batches(db: Database, queue: Queue, processes: bool) -> None:
    ids = queue.push_many(["bury", "done", "done", "snooze", "done"])
    worker = of(handlers.batch_by_payload, batch=3, processes=processes, maximum=1)
    worker.run(db, drain=True)
    assert counts(queue) == {"dead": 1, "scheduled": 4}
    errors = [found(queue, id).errors[0].error for id in (ids[1], ids[2], ids[4])]
    assert all(error.startswith("one of ") for error in errors)
    assert len({*errors}) <= 2
    odd = queue.push("too few")
    worker.run(db, drain=True)
    assert "returned a list of 0" in found(queue, odd).errors[0].error


@every_kind_of_consumers
def test_a_call_that_takes_too_long_has_failed(db: Database, queue: Queue, consumers: str) -> None:
    ids = queue.push_many([*"ab"])
    options, _, never_end = CONSUMERS[consumers]
    of(never_end, timeout=0.05, **options).run(db, drain=True)
    for id in ids:
        message = found(queue, id)
        assert (message.state, len(message.errors)) == ("scheduled", 1)
        assert "took longer than its time-out" in message.errors[0].error


@only("sqlite")
def test_a_handler_that_takes_its_process_down(db: Database, queue: Queue) -> None:
    id = queue.push("x")
    of(handlers.die, processes=True).run(db, drain=True)
    assert "exit code 7" in found(queue, id).errors[0].error


@every_kind_of_consumers
def test_leases_are_kept_while_a_handler_runs(place: Place, db: Database, consumers: str) -> None:
    queue = db.create_queue("work", payload="text", lease=LEASE.total_seconds())
    id = queue.push("x")
    options, _, never_end = CONSUMERS[consumers]
    with working(of(never_end, shutdown_timeout=0, **options), db):
        until(lambda: found(queue, id).state == "in_progress", "a handler begins")
        popped_at = found(queue, id).popped_at
        assert popped_at
        until(lambda: (found(queue, id).lease_until or popped_at) > popped_at + 1.9 * LEASE, "the lease goes on, twice")
        assert found(queue, id).attempts == 1
        assert place.open().queue("work").pop() is None, "nobody else got it"


class PausingHandler:
    """A handler for 401 messages. After 200 of them it waits for `go`, while others are prefetched."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.begun, self.go = Event(), Event()
        queue.push_many([*["quick"] * 200, "wait", *["quick"] * 200])

    def handle(self, message: Claim) -> None:
        if message.payload == "wait":
            self.begun.set()
            assert self.go.wait(PATIENCE)

    def begin(self) -> None:
        assert self.begun.wait(PATIENCE)
        until(lambda: counts(self.queue)["in_progress"] > 1, "messages are prefetched")

    def check(self) -> None:
        assert counts(self.queue) == {"finished": 201, "ready": 200}
        assert {message.attempts for message in self.queue.peek(1000)} == {0}


def test_messages_that_were_not_begun_are_released(db: Database, queue: Queue) -> None:
    pausing = PausingHandler(queue)
    worker = of(pausing.handle, maximum=1)
    with working(worker, db):
        pausing.begin()
        worker.stop()
        until(lambda: counts(queue)["in_progress"] == 1, "they are given back before the handler ends")
        pausing.go.set()
    pausing.check()


def test_nothing_is_begun_once_it_says_that_it_stops(
    db: Database, queue: Queue, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pausing = PausingHandler(queue)

    def on_record(record: logging.LogRecord) -> None:
        if record.getMessage().startswith("stopping"):
            pausing.go.set()
            until(lambda: counts(queue).get("finished") == 201, "the handler ends, while the worker still says so")

    monkeypatch.setattr(caplog.handler, "emit", on_record)
    caplog.set_level(logging.INFO, "tablequeue.worker")
    worker = of(pausing.handle, maximum=1)
    with working(worker, db):
        pausing.begin()
        worker.stop()
    pausing.check()


@every_kind_of_consumers
def test_a_handler_that_does_not_end_is_not_waited_for(
    db: Database, queue: Queue, consumers: str, tmp_path: Path
) -> None:
    id = queue.push(f"{tmp_path}/one")
    announce = handlers.announce_async if consumers == "tasks" else handlers.announce
    with working(of(announce, shutdown_timeout=0.05, **CONSUMERS[consumers][0]), db):
        until((tmp_path / "begun").exists, "a handler begins")
    message = found(queue, id)
    (tmp_path / "go").touch()
    assert message.state == "ready", "for another worker, at once"
    assert "the worker stopped" in message.errors[0].error


def test_at_most_once(db: Database) -> None:
    queue = db.create_queue("work", payload="text", delivery="at_most_once")
    queue.push_many(["done", "raise", "snooze", "bury", "retry", "done"])
    of(handlers.by_payload).run(db, drain=True)
    assert counts(queue) == {"finished": 2}
    assert [message.payload for message in queue.lost(older_than=0)] == ["raise", "snooze", "bury", "retry"]


def test_what_was_popped_at_most_once_is_handled_before_the_worker_stops(
    db: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such a message cannot be given back."""
    caplog.set_level(logging.INFO, logger="tablequeue.worker")
    # From the first message on, one is popped ahead for the next consumer.
    monkeypatch.setattr(fetcher, "GROW_AFTER", 0)
    queue, other = db.create_queue("work", delivery="at_most_once"), db.create_queue("other")
    go = Event()
    worker = Worker(maximum=2, shutdown_timeout=PATIENCE)
    for name in ("work", "other"):
        worker.add(Handler(name, lambda message: go.wait(PATIENCE), consumers=1 if name == "other" else None))
    other.push_many(range(9))
    with working(worker, db):
        until(lambda: worker.consumers["other"] == 1, "one of the two consumers is busy with the other queue")
        queue.push_many(range(9))
        until(lambda: len(queue.lost(older_than=0)) == 2, "one is popped ahead, and has no consumer")
        worker.stop()
        until(lambda: "stopping:" in caplog.text, "the worker pops no more")  # or it pops for a free consumer
        until(lambda: counts(other) == {"ready": 8, "in_progress": 1}, "the other queue gets back what was prefetched")
        go.set()
    assert counts(queue) == {"finished": 2, "ready": 7}
    assert queue.lost(older_than=0) == []


@pytest.mark.parametrize("design", [{"strict": True}, {"groups": True}])
def test_groups_keep_their_order(db: Database, design: dict[str, Any]) -> None:
    queue = db.create_queue("work", **design)
    groups = [*"abc"] if design.get("groups") else [None]
    for n in range(10):
        for group in groups:
            queue.push([group, n], group=group)
    seen: dict[Any, list[int]] = {group: [] for group in groups}
    lock = Lock()

    def handle(message: Claim) -> None:
        group, n = message.payload
        with lock:
            seen[group].append(n)

    of(handle).run(db, drain=True)
    assert seen == {group: [*range(10)] for group in groups}


def test_consumers_come_with_messages_and_go_without(db: Database, queue: Queue) -> None:
    go = Event()
    worker = of(lambda message: go.wait(PATIENCE), maximum=4)
    with working(worker, db):
        assert worker.consumers == {"work": 0}
        queue.push_many(["x"] * 20)
        until(lambda: worker.consumers["work"] == 4, "consumers are added")
        go.set()
        until(lambda: worker.consumers["work"] == 0, "consumers retire")
    assert counts(queue) == {"finished": 20}


def test_two_queues_share_the_consumers(db: Database, queue: Queue) -> None:
    other = db.create_queue("other")
    begun, go = Event(), Event()
    worker = Worker(maximum=2)
    worker.add(Handler("work", lambda message: go.wait(PATIENCE)))
    worker.add(Handler("other", lambda message: begun.set()))
    queue.push_many(["x"] * 50)
    with working(worker, db):
        until(lambda: counts(queue).get("in_progress", 0) >= 2, "all consumers are busy")
        other.push(1)
        served = begun.wait(PATIENCE)
        go.set()
    assert served, "no queue starves"


def test_a_queue_that_is_dropped_ends_the_worker(db: Database, queue: Queue) -> None:
    done = Event()
    worker = of(lambda message: done.set())
    queue.push("x")

    def work() -> None:
        with working(worker, db) as thread:
            assert done.wait(PATIENCE)
            queue.drop()
            thread.join(PATIENCE)

    refuses(QueueNotFound, work)


@only("postgresql")
def test_a_server_that_hangs_up_costs_a_moment(place: Place, db: Database, queue: Queue) -> None:
    done = Event()
    with working(of(lambda message: done.set()), db):
        queue.push("x")
        assert done.wait(PATIENCE)
        done.clear()
        place.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and query ~ 'tq_work'"
        )
        place.open().queue("work").push("y")
        assert done.wait(PATIENCE)
    assert counts(place.open().queue("work")) == {"finished": 2}


def test_what_cannot_be_a_worker(db: Database) -> None:
    refuses(BadInput, Worker, maximum=0)
    refuses(BadInput, Worker, minimum=-1)
    refuses(BadInput, Handler, "work", "no function")
    refuses(BadInput, Handler, "work", handlers.by_payload, batch=0)
    for timeout in (0, -1, float("nan"), float("inf"), "soon", True):
        refuses(BadInput, Handler, "work", handlers.by_payload, timeout=timeout)
    refuses(BadInput, Handler, "work", handlers.by_payload_async, processes=True)
    refuses(BadInput, Handler, "work", lambda message: None, processes=True)
    refuses(BadInput, Snooze, -1)
    refuses(BadInput, Retry, "soon")
    worker = of(handlers.by_payload)
    refuses(BadInput, worker.add, Handler("work", handlers.by_payload))
    assert "no handler" in refuses(BadInput, Worker().run, db).cause
    worker.minimum = 5
    assert "5 consumers" in refuses(BadInput, worker.run, db).cause
    for target in ("", "tests", "tests:", "no_such_module:x", "tests.worker.handlers:nobody"):
        refuses(BadInput, import_target, target)
    assert import_target("tests.worker.handlers:by_payload") is handlers.by_payload


def test_a_handler_without_its_queue_is_refused() -> None:
    """`@worker.handler` without parentheses would take the function for the name, and never run it."""
    worker = Worker()
    error = refuses(BadInput, worker.handler, handlers.by_payload)
    assert "'by_payload'" in error.cause
    assert '@worker.handler("emails")' in error.remedy
    assert worker.handlers == {}


def test_a_worker_takes_the_database_of_its_threads(db: Database) -> None:
    with_async = AsyncDatabase(db, Threads(1), None)
    for wrong in (with_async, db.engine, None):
        error = refuses(BadInput, of(handlers.by_payload_async).run, wrong)
        assert type(wrong).__name__ in error.cause


def test_a_worker_says_what_it_runs(db: Database, queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="tablequeue.worker")
    worker = of(handlers.by_payload, consumers=3)
    worker.every("0 8 * * *", "work", "x", name="daily")
    queue.push("last")
    worker.handlers["work"] = replace(worker.handlers["work"], function=lambda message: worker.stop())
    worker.run(db)
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "started: work (at most 3 consumers), daily (pushes to work)"
    caplog.clear()
    of(handlers.by_payload).run(db, drain=True)
    assert caplog.records[0].getMessage() == "started: work (at most 4 consumers)"


def test_the_decorator_leaves_the_function_as_it_is(db: Database, queue: Queue) -> None:
    worker = Worker()

    @worker.handler("work", consumers=2, timeout=30)
    def handle(message: Claim) -> str:
        return message.payload

    id = queue.push("x")
    assert handle(claimed(queue)) == "x"
    queue.push("y")
    worker.run(db, drain=True)
    assert ids_of(queue.history()) == [id + 1]
