"""Results: what a consumer gives when it completes a message, and what its producer waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tablequeue import Claim, Database, Queue, aio
from tablequeue.errors import BadDefinition, BadInput, BadPayload, LeaseLost, NoResult
from tablequeue.ext import context_of
from tablequeue.worker import Done, Handler, Worker
from tests.checks import check_results
from tests.servers import Place
from tests.support import at, claimed, design_group, refuses

pytestmark = pytest.mark.quick

SOME = {"total": 7, "parts": [1.5, None, "ä\u2028\N{GRINNING FACE} \\u0041"]}


@pytest.fixture
def queue(db: Database) -> Queue:
    return db.create_queue("work", results=True, max_attempts=1, expires=60)


def test_a_result_is_kept_with_the_history(db: Database, options: dict[str, Any]) -> None:
    queue = db.create_queue("work", **options, results=True)
    check_results(queue, **design_group(queue, "a"))


def test_at_most_once_too(db: Database) -> None:
    queue = db.create_queue("once", results=True, delivery="at_most_once")
    id = queue.push(1)
    message = claimed(queue)
    assert refuses(NoResult, queue.result, id).state == "in_progress"
    message.complete(result=SOME)
    assert queue.result(id) == SOME


def test_a_batch_has_a_result_for_each(queue: Queue) -> None:
    ids = queue.push_many([1, 2, 3])
    batch = queue.pop_many(3)
    for bad in ([1], {message.id: 1 for message in batch}, "abc", 1):
        refuses(BadInput, queue.complete_many, batch, results=bad)
    queue.complete_many(batch, results=[SOME, None, "c"])
    assert [queue.result(id) for id in ids] == [SOME, None, "c"]


def test_what_has_no_result_says_why(queue: Queue) -> None:
    dead, _, _ = queue.push_many([1, 2, 3], now=at(0))
    claimed(queue, now=at(0)).fail("no", now=at(0))
    queue.pop(now=at(0))
    queue.pop(now=at(0))
    waiting = queue.push(4, now=at(0))
    assert refuses(NoResult, queue.result, dead, wait=60).state == "dead"
    assert refuses(NoResult, queue.result, waiting).state == "ready"
    assert refuses(NoResult, queue.result, waiting, wait=0.01).state == "ready"
    queue.pop(now=at(60))
    assert refuses(NoResult, queue.result, waiting, wait=60).state == "expired"
    assert refuses(NoResult, queue.result, waiting + 1000, wait=60).state is None


def test_a_result_is_committed_with_the_completion(queue: Queue, db: Database) -> None:
    id = queue.push(1)
    message = claimed(queue)
    with db.engine.connect() as connection:
        message.complete(result=1, connection=connection)
        connection.rollback()
    assert refuses(NoResult, queue.result, id).state == "in_progress"
    with db.engine.begin() as connection:
        message.complete(result=2, connection=connection)
    assert queue.result(id) == 2
    refuses(LeaseLost, message.complete, result=3)
    assert queue.result(id) == 2


def test_a_producer_waits_for_it(queue: Queue, place: Place) -> None:
    id = queue.push(1)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(place.open().queue("work").result, id, wait=60)
        claimed(queue).complete(result=SOME)
        assert waiting.result(60) == SOME


@contextmanager
def waiting_producer(queue: Queue, id: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Future[Any]]:
    """A thread that waits for the result of a message, and looks only when it is woken."""
    notifier = context_of(queue).runner.notifier
    if context_of(queue).engine.name not in ("sqlite", "postgresql"):
        pytest.skip("nothing notifies here")
    assert notifier is not None
    monkeypatch.setattr("tablequeue.verbs.results.PAUSES", (1000.0, 1000.0))
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(queue.result, id, wait=1000)
        channel = context_of(queue).table.waiting_for_results.channel
        while not notifier._waiting.get(channel):
            assert not waiting.done()
        yield waiting


def test_a_completion_wakes_the_producer(place: Place, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    id = queue.push(1)
    with waiting_producer(queue, id, monkeypatch) as waiting:
        claimed(place.open().queue("work")).complete(result=SOME)
        assert waiting.result(60) == SOME


@pytest.mark.parametrize("end", ["cancelled", "expired"])
def test_an_end_without_a_result_wakes_the_producer(
    place: Place, db: Database, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    queue = db.create_queue("ending", results=True, expires=60)
    id = queue.push(1)
    with waiting_producer(queue, id, monkeypatch) as waiting:
        other = place.open().queue("ending")
        if end == "cancelled":
            other.cancel(id)
        else:
            assert other.pop(now=at(0)) is None, "the clock of the tests is years ahead"
        with pytest.raises(NoResult, match=end):
            waiting.result(60)


def test_async(queue: Queue, place: Place) -> None:
    async def run() -> None:
        async with await aio.connect(place.url, schema=place.schema) as database:
            work = await database.queue("work")
            id = await work.push(1)
            waiting = asyncio.create_task(work.result(id, wait=60))
            message = await work.pop()
            assert message is not None
            await message.complete(result=SOME)
            assert await waiting == SOME

    asyncio.run(run())


def test_a_worker_keeps_what_its_handler_returns(db: Database, queue: Queue) -> None:
    ids = queue.push_many(["value", "done", "nothing", "object"])

    def handle(message: Claim) -> Any:
        return {"value": SOME, "done": Done(SOME), "nothing": None, "object": object()}[message.payload]

    worker = Worker()
    worker.add(Handler("work", handle))
    worker.run(db, drain=True)
    assert [queue.result(id) for id in ids[:3]] == [SOME, SOME, None]
    assert refuses(NoResult, queue.result, ids[3]).state == "dead"
    assert "object" in queue.dead()[0].errors[0].error


def test_the_history_takes_them_with_it(queue: Queue) -> None:
    ids = queue.push_many([1, 2], now=at(0))
    for number, message in enumerate(queue.pop_many(2, now=at(0))):
        message.complete(result=number, now=at(number))
    assert queue.purge_history(5, now=at(5)) == 1
    assert refuses(NoResult, queue.result, ids[0]).state is None
    assert queue.result(ids[1]) == 1
    context = context_of(queue)
    assert context.run(context.reads.result, {"id": ids[0]}) is None


def test_what_a_queue_cannot_do_is_refused(db: Database, queue: Queue) -> None:
    plain = db.create_queue("plain")
    plain.push(1)
    message = claimed(plain)
    assert "keeps no results" in refuses(BadInput, message.complete, result=1).cause
    refuses(BadInput, plain.result, 1)
    refuses(BadDefinition, db.create_queue, "none", results=True, history="none")
    queue.push(1)
    refuses(BadPayload, claimed(queue).complete, result=object())
    queue.drop()
