"""`perform` and `drain`: what became of a message is what becomes of it in a worker."""

from __future__ import annotations

import asyncio
import sqlite3
from threading import Event
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import tablequeue
from tablequeue import Backoff, Claim, Database, LeaseLost
from tablequeue.aio import connect as connect_async
from tablequeue.errors import BadInput, QueueNotFound
from tablequeue.testing import (
    Killed,
    aio,
    assert_pushed,
    consuming,
    drain,
    in_transaction,
    killed_after,
    lose_lease,
    perform,
    with_lost_lease,
)
from tablequeue.worker import DeadLetter, Done, Finished, Handler, Retry, Worker
from tablequeue.worker.ending import endings
from tests.kit.handlers import WAYS, in_thread, work
from tests.servers import Place

pytestmark = pytest.mark.quick

THREADS, TASKS = work.handlers["threads"], work.handlers["tasks"]


def counts_of_a_worker(handler: Handler, database: Database) -> dict[str, int]:
    worker = Worker()
    worker.add(handler)
    return {**worker.run(database, drain=True)}


@pytest.mark.parametrize("handler", [THREADS, TASKS], ids=["thread", "task"])
@pytest.mark.parametrize("way", WAYS)
def test_a_message_becomes_what_it_becomes_in_a_worker(db: Database, way: str, handler: Handler) -> None:
    """At the last attempt, so that a worker that drains does not try again."""
    queue = db.create_queue(handler.queue, max_attempts=1, results=True)
    performed = perform(handler, way, queue=queue)
    queue.push(way)
    counts = counts_of_a_worker(handler, db)
    stored = queue.find(queue.push(0) - 1)
    assert stored is not None and performed.message is not None  # noqa: PT018
    assert (performed.message.state, len(performed.message.errors)) == (stored.state, len(stored.errors))
    assert [performed.state] == ([*counts] or ["completed" if way == "finished" else "unfinished"])
    assert [error.error.splitlines()[-1] for error in performed.message.errors] == [
        error.error.splitlines()[-1] for error in stored.errors
    ]


STATES = {
    "nothing": "completed",
    "error": "scheduled",
    "exit": "scheduled",
    "late": "scheduled",
    "at once": "ready",
    "dead": "dead",
    "snooze": "snoozed",
    "finished": "completed",
    "not finished": "unfinished",
}


@pytest.mark.parametrize(("way", "state"), STATES.items(), ids=STATES)
def test_an_attempt_that_is_not_the_last(way: str, state: str) -> None:
    for attempt in (1, 4):
        performed = perform(THREADS, way, attempt=attempt)
        assert (performed.state, performed.attempt, performed.queue) == (state, attempt, "threads")
        assert performed.message is not None
        assert performed.message.attempts == (attempt - 1 if state == "snoozed" else attempt)


def test_the_outcome_has_the_result_and_the_error() -> None:
    performed = perform(in_thread, "result", attempt=3)
    assert (performed.outcome, performed.result, performed.error) == (Done({"attempt": 3}), {"attempt": 3}, "")
    performed = perform(in_thread, "error", attempt=5)
    assert isinstance(performed.outcome, Retry)
    assert isinstance(performed.outcome.error, ValueError)
    assert performed.error.startswith("Traceback")
    assert repr(performed) == "<Performed message 1 of 'perform', attempt 5: dead: ValueError: boom>"
    assert perform(in_thread, "dead").error == "no address"
    assert perform(in_thread, "snooze").result is None


def test_the_options_are_those_of_the_queue_and_it_is_left_alone(db: Database) -> None:
    queue = db.create_queue("threads", groups=True, max_attempts=2, backoff=Backoff(100, jitter=0))
    queue.push("another", group="eu")
    queue.pause()
    seen: list[Claim] = []

    def look(message: Claim) -> Any:
        seen.append(message)
        return Retry()

    performed = perform(look, {"n": 1}, queue=queue, group="eu", key="k", headers={"trace": 7})
    assert performed.message is not None and performed.message.due_at is not None  # noqa: PT018
    assert (performed.message.due_at - seen[0].popped_at).total_seconds() == pytest.approx(100, abs=10)
    assert (seen[0].payload, seen[0].group, seen[0].key, seen[0].headers) == ({"n": 1}, "eu", "k", {"trace": 7})
    assert perform(look, 1, queue=queue, attempt=2).state == "dead"
    assert db.queues() == ["threads"]
    assert_pushed(queue, count=1)
    with pytest.raises(BadInput, match=r"attempt is 3, and a message of the queue has 2\. Give fewer"):
        perform(look, 1, queue=queue, attempt=3)


def test_a_dead_letter_moves_to_its_queue(db: Database) -> None:
    dead = db.create_queue("dead")
    queue = db.create_queue("emails", dead_letter_to="dead")
    assert perform(lambda message: DeadLetter("no"), 7, queue=queue).state == "dead"
    assert_pushed(dead, 7, count=1)


def test_delivery_at_most_once(db: Database) -> None:
    queue = db.create_queue("requests", delivery="at_most_once")
    assert perform(THREADS, "error", queue=queue).state == "lost"
    assert perform(THREADS, "nothing", queue=queue).state == "completed"
    with pytest.raises(BadInput, match="a message of the queue has 1"):
        perform(THREADS, "error", queue=queue, attempt=2)


def test_a_subscription_and_every_payload(db: Database) -> None:
    topic = db.create_topic("events", payload="bytes")
    assert perform(lambda message: message.payload.decode(), b"a", queue=topic.subscribe("mail")).result == "a"
    assert perform(lambda message: message.payload.decode(), b"a").result == "a"
    assert perform(lambda message: (message.priority, message.group), 1, priority=3).result == (3, None)
    assert perform(lambda message: message.group, 1, group="eu").result == "eu"


def test_a_drain_is_that_of_a_worker(db: Database) -> None:
    """All kinds of handlers, and what they push; of processes in this one."""
    queues = {name: db.create_queue(name, results=True) for name in work.handlers}

    def push(message: Claim) -> None:
        queues["threads"].push("result")
        queues["batches"].push_many(["result", "retry", "nothing", "dead"])

    db.create_queue("first").push(1)
    queues["tasks"].push("late")
    queues["processes"].push("unserialisable")
    assert drain(Handler("first", push), db).counts == {"completed": 1}
    drained = drain(work, db)
    assert drained.counts == {"completed": 3, "scheduled": 3, "dead": 1}
    assert [one.result for one in drained if one.queue == "batches"] == [3, None, None, None]  # 3 of them in a call
    assert drain(work, db) == []


def test_a_drain_handles_what_handlers_push(db: Database) -> None:
    a, b = db.create_queue("a"), db.create_queue("b")
    worker = Worker()
    worker.add(Handler("a", lambda message: b.push(message.payload - 1) and None))
    worker.add(Handler("b", lambda message: a.push(message.payload) and None if message.payload else None))
    a.push(3)
    assert drain(worker, db).counts == {"completed": 6}


def test_a_drain_without_an_end_fails(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tablequeue.testing.performing.MOST", 5)
    queue = db.create_queue("a")
    queue.push(1)
    with pytest.raises(AssertionError, match="drain has handled 6 messages, the last of 'a', and there are more"):
        drain(Handler("a", lambda message: queue.push(1) and None), db)


def test_what_ends_a_test_is_no_failure_of_a_message(db: Database) -> None:
    for error in (KeyboardInterrupt, pytest.fail.Exception("must not be called")):

        def handler(message: Claim, error: Any = error) -> None:
            raise error

        with pytest.raises((KeyboardInterrupt, pytest.fail.Exception)):
            perform(handler, 1)


# -- failures ----------------------------------------------------------------------------------------------------------


def test_a_killed_consumer_has_recorded_nothing(db: Database) -> None:
    queue, done = db.create_queue("charges"), []

    def charge(message: Claim) -> None:
        done.append(message.attempt)
        if message.attempt == 1:
            raise Killed

    queue.push(7)
    first, second = drain(Handler("charges", charge), db)
    assert (first.outcome, first.state, second.state, done) == (None, "unfinished", "completed", [1, 2])
    assert second.message is not None
    assert [error.error for error in second.message.errors] == ["lease expired"]


@pytest.mark.parametrize("handler", [THREADS, TASKS], ids=["thread", "task"])
def test_a_consumer_is_killed_after_its_handler(db: Database, handler: Handler) -> None:
    performed = perform(killed_after(handler), "nothing", queue=db.create_queue(handler.queue))
    assert performed.message is not None
    assert (performed.state, performed.message.state, performed.message.attempts) == ("unfinished", "ready", 1)
    kept = perform(killed_after(handler), "finished", queue=db.queue(handler.queue))
    assert kept.message is not None
    assert kept.message.state == "finished", "the handler has finished it itself"


def test_a_lost_lease_is_noticed_by_the_handler(db: Database) -> None:
    """The remedy of a handler that completes its message in its own transaction: it is rolled back."""
    queue = db.create_queue("charges")

    def charge(message: Claim) -> Finished:
        with db.engine.begin() as connection:
            db.queue("charges").push("done", connection=connection)
            message.complete(connection=connection)
        return Finished()

    assert perform(charge, 7, queue=queue).state == "completed"
    assert_pushed(queue, "done", count=1)
    performed = perform(with_lost_lease(charge), 7, queue=queue)
    assert isinstance(performed.outcome, Retry)
    assert isinstance(performed.outcome.error, LeaseLost)
    assert performed.state == "unfinished"
    assert_pushed(queue, "done", count=1)


def test_a_lease_is_lost(db: Database) -> None:
    queue = db.create_queue("charges")
    queue.push(7)
    message = queue.pop()
    assert message is not None
    lose_lease(message)
    with pytest.raises(LeaseLost):
        message.complete()
    assert queue.stats().ready == 1
    with pytest.raises(LeaseLost):
        lose_lease(message)


def test_a_batch_that_is_killed_is_delivered_again(db: Database) -> None:
    queue = db.create_queue("batches", max_attempts=1)
    queue.push_many(["nothing", "nothing"])
    assert drain(killed_after(work.handlers["batches"]), db).counts == {"unfinished": 2}
    assert queue.stats().dead == 2


async def fails(message: Claim) -> None:
    pytest.fail("no")


# -- asyncio -----------------------------------------------------------------------------------------------------------


def test_async_handlers_run_in_the_loop_of_the_test(db: Database) -> None:
    async def main() -> None:
        loop, queue = asyncio.get_running_loop(), db.create_queue("tasks")

        async def handler(message: Claim) -> bool:
            return asyncio.get_running_loop() is loop

        assert (await aio.perform(handler, 1, queue=queue)).result is True
        assert (await aio.perform(in_thread, "result", attempt=2)).result == {"attempt": 2}
        assert (await aio.perform(killed_after(handler), 1)).state == "unfinished"
        queue.push_many(["nothing", "error", "late"])
        assert (await aio.drain(TASKS, db)).counts == {"completed": 1, "scheduled": 2}
        with pytest.raises(BadInput, match=r"was called in an event loop without await\. Call await aio"):
            perform(handler, 1)
        assert perform(in_thread, "nothing").state == "completed"
        with pytest.raises(asyncio.TimeoutError):
            async with asyncio.timeout(0.05):
                await aio.perform(lambda_that_waits, 1)

    asyncio.run(main())


async def lambda_that_waits(message: Claim) -> None:
    await asyncio.sleep(60)


def test_a_cancellation_waits_for_the_step_that_is_under_way(db: Database) -> None:
    """Else the drain that is given up would go on beside the next one."""
    queue = db.create_queue("emails")
    queue.push_many(range(3))
    began, end = Event(), Event()

    def handler(message: Claim) -> None:
        began.set()
        assert end.wait(60)

    async def main() -> None:
        task = asyncio.create_task(aio.drain(Handler("emails", handler), db))
        await asyncio.to_thread(began.wait, 60)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        end.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert (queue.stats().in_progress, queue.stats().ready) == (1, 2)


@pytest.mark.parametrize("handler", [lambda message: pytest.fail("no"), fails], ids=["thread", "task"])
def test_what_ends_a_test_of_asyncio_is_no_failure_of_a_message(handler: Any) -> None:
    with pytest.raises(pytest.fail.Exception):
        perform(handler, 1)
    with pytest.raises(pytest.fail.Exception):
        asyncio.run(aio.perform(handler, 1))


ASYNC_DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg", "mariadb": "mariadb+aiomysql"}


def test_the_transaction_of_an_async_session_is_rolled_back(db: Database, place: Place) -> None:
    pytest.importorskip("aiomysql")
    queue = db.create_queue("emails")

    async def main() -> None:
        url = sa.make_url(place.url)
        engine = create_async_engine(url.set(drivername=ASYNC_DRIVERS[url.get_backend_name()]))
        async with await connect_async(place.url, schema=place.schema) as own, engine.connect() as connection:
            transaction = await connection.begin()
            inside = await connection.run_sync(lambda sync: in_transaction(sync, schema=place.schema))
            session = AsyncSession(connection, join_transaction_mode="create_savepoint")
            other = await own.queue("emails")
            await other.push(7, connection=session)
            await session.commit()

            async def handler(message: Claim) -> Any:
                await other.push(message.payload + 1, connection=session)
                await session.commit()
                return message.payload

            drained = await connection.run_sync(lambda _: drain(Handler("emails", once(handler)), inside))
            assert [one.state for one in drained] == ["completed", "completed"]
            await connection.run_sync(lambda _: assert_pushed(inside.queue("emails"), count=2))
            await session.close()
            await transaction.rollback()
        await engine.dispose()

    asyncio.run(main())
    assert_pushed(queue, count=0)


def once(handler: Any) -> Any:
    """Return an async handler that calls the other one at its first message."""
    called: list[Claim] = []

    async def calls(message: Claim) -> Any:
        called.append(message)
        return await handler(message) if len(called) == 1 else None

    return calls


# -- transactions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["connection", "session"])
def test_a_rollback_undoes_all(db: Database, place: Place, form: str) -> None:
    queue = db.create_queue("threads")
    with db.engine.connect() as connection:
        transaction = connection.begin()
        session = Session(connection, join_transaction_mode="create_savepoint")
        inside = in_transaction(connection if form == "connection" else session, schema=place.schema)
        for way in ("nothing", "error"):
            queue.push(way, connection=session)
            session.commit()
        queue.push("nothing", connection=session)
        session.rollback()
        assert_pushed(inside.queue("threads"), count=2)
        assert drain(THREADS, inside).counts == {"completed": 1, "scheduled": 1}
        if not inside._runner.engine.commits_ddl:
            assert perform(THREADS, "nothing", queue=inside.queue("threads")).state == "completed"
        else:
            with pytest.raises(BadInput, match="would commit the transaction of the test"):
                perform(THREADS, "nothing", queue=inside.queue("threads"))
        assert_pushed(inside.queue("threads"), count=2)
        session.close()
        transaction.rollback()
    assert db.queues() == ["threads"]
    assert_pushed(queue, count=0)


# -- wrong input -------------------------------------------------------------------------------------------------------


def test_wrong_input_is_refused(db: Database) -> None:
    queue = db.create_queue("emails")
    wrong: Any = "emails"
    with pytest.raises(BadInput, match=r"perform takes the options of a Queue, and was given str\. Give it the queue"):
        perform(in_thread, 1, queue=wrong)
    with pytest.raises(BadInput, match="The handler of 'perform' is 'emails'"):
        perform(wrong, 1)
    with pytest.raises(BadInput, match="attempt is 0"):
        perform(in_thread, 1, attempt=0)
    with pytest.raises(tablequeue.errors.BadPayload):
        perform(in_thread, {1, 2})
    with pytest.raises(BadInput, match="has no groups"):
        perform(in_thread, 1, queue=queue, group="eu")
    with pytest.raises(BadInput, match=r"drain works on a Database .* was given str\. Give it one"):
        drain(work, wrong)
    with pytest.raises(BadInput, match="The worker has no handler"):
        drain(Worker(), db)
    with pytest.raises(QueueNotFound, match="threads"):
        drain(work, db)
    with pytest.raises(BadInput, match=r"in_transaction was given Connection\. Give a SQLAlchemy Connection or Ses"):
        in_transaction(sqlite3.connect(":memory:"))  # type: ignore[arg-type]
    assert db.queues() == ["emails"]


# -- mutants -----------------------------------------------------------------------------------------------------------


def test_a_performer_that_completes_everything_is_detected(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        consuming, "endings", lambda definition, assignment, outcomes: endings(definition, assignment, [Done()])
    )
    with pytest.raises(AssertionError):
        test_an_attempt_that_is_not_the_last("error", "scheduled")


def test_a_performer_that_calls_without_a_time_out_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        consuming._Thread, "_call", lambda self, assignment: self.handler.outcomes(None, len(assignment.claims))
    )
    with pytest.raises(AssertionError):
        test_an_attempt_that_is_not_the_last("late", "scheduled")


def test_a_killed_consumer_that_ends_its_message_is_detected(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consuming, "Killed", type("Other", (BaseException,), {}))
    monkeypatch.setattr(consuming, "FAILURES", (BaseException,))
    with pytest.raises((AssertionError, ValueError)):
        test_a_killed_consumer_has_recorded_nothing(db)
