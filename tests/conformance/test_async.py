"""The async verbs on connections of their own: they do the same, may be cancelled at any point, and never block the
loop.

Events stop and release the code in threads, so no test depends on how long anything takes.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import aclosing
from functools import partial, wraps
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import tablequeue
from tablequeue import ALL, Claim, Database, Empty, LeaseLost, Queue, aio
from tablequeue.aio import AsyncClaim, AsyncDatabase, AsyncQueue
from tablequeue.aio.database import own_url
from tablequeue.aio.threads import Threads
from tablequeue.aio.wait import AsyncWaiter
from tablequeue.engines.engine import Engine
from tablequeue.errors import BadInput, BadUrl, QueueNotFound, Unreachable
from tests.async_support import PATIENCE, claimed, in_loop, lock, refuses
from tests.servers import Kind, Place
from tests.support import at, counts, found, ids_of, with_parts

pytestmark = pytest.mark.quick


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class Gate:
    """A place where a thread stops in the middle of an operation."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def stop(self) -> None:
        self.reached.set()
        assert self.opened.wait(PATIENCE), "nobody opened the gate: the event loop stands still"

    async def is_reached(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, PATIENCE)


def gated(engine: type[Engine], name: str, gate: Gate) -> type[Engine]:
    """Return the engine with a gate before one operation."""
    part = "reads" if hasattr(engine.reads, name) else "messages"
    part_class = type(getattr(engine, part))
    operation = getattr(part_class, name)

    @wraps(operation)
    def wait(*args: Any) -> Any:
        gate.stop()
        return operation(*args)

    return with_parts(engine, {part: type("Gated", (part_class,), {name: wait})})


@pytest.fixture
def design() -> str:
    """Waiting and cancelling do not depend on the order."""
    return "fifo"


@pytest.fixture
def own_threads() -> Iterator[Callable[[int], Threads]]:
    made: list[Threads] = []

    def make(size: int) -> Threads:
        made.append(Threads(size))
        return made[-1]

    yield make
    for threads in made:
        threads.close()


@pytest.fixture
def work(queue: Queue, own_threads: Callable[[int], Threads]) -> AsyncQueue:
    """The same queue as `queue`, in the same database."""
    return AsyncQueue(queue, own_threads(4))


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


Gated = Callable[..., AsyncQueue]


@pytest.fixture
def behind(
    queue: Queue, kind: Kind, place: Place, gate: Gate, own_threads: Callable[[int], Threads]
) -> Callable[..., AsyncQueue]:
    """A function: `behind(operation)` returns the queue, and each call of that operation stops at the gate."""

    def open(operation: str, threads: int = 4) -> AsyncQueue:
        database = place.open_with(gated(kind.engine_class, operation, gate))
        return AsyncQueue(database.queue(queue.name), own_threads(threads))

    return open


# -- the same verbs ------------------------------------------------------------------------------------------------


def _public(cls: type) -> dict[str, Any]:
    return {name: value for name, value in vars(cls).items() if not name.startswith("_")}


def _verbs(cls: type) -> dict[str, Any]:
    """Return the public methods, without static functions."""
    return {name: value for name, value in _public(cls).items() if inspect.isfunction(value)}


def _parameters(function: Any) -> list[tuple[str, Any, Any]]:
    parameters = inspect.signature(function).parameters.values()
    return [(parameter.name, parameter.kind, parameter.default) for parameter in parameters]


PAIRS = ((Database, AsyncDatabase), (Queue, AsyncQueue), (Claim, AsyncClaim))
VERBS = [
    pytest.param(verb, counterpart, name, id=f"{counterpart.__name__}.{name}")
    for one, counterpart in PAIRS
    for name, verb in _verbs(one).items()
]


@pytest.mark.parametrize(("verb", "counterpart", "name"), VERBS)
def test_every_verb_has_an_async_one_of_the_same_parameters(verb: Any, counterpart: type, name: str) -> None:
    assert name in vars(counterpart), f"add {name} to {counterpart.__name__}"
    other = vars(counterpart)[name]
    assert _parameters(other) == _parameters(verb)
    assert bool(other.__doc__) == bool(verb.__doc__), "a verb says what it does"
    # An iterator becomes an async iterator, a context manager an async one, and any other method a coroutine.
    returned = str(inspect.signature(verb).return_annotation)
    if inspect.isgeneratorfunction(inspect.unwrap(verb)) or "Iterator" in returned or "Generator" in returned:
        assert inspect.isasyncgenfunction(inspect.unwrap(other))
    else:
        assert inspect.iscoroutinefunction(other)


def test_an_async_class_has_no_verb_of_its_own() -> None:
    for one, counterpart in PAIRS:
        # `Claim.cancelled` is a property; it asks the database, so the async one is awaited.
        assert _verbs(counterpart).keys() - {"cancelled"} == _verbs(one).keys()


def test_an_async_claim_says_what_a_claim_says() -> None:
    assert set(AsyncClaim.__annotations__) == _public(Claim).keys() - _verbs(Claim).keys() - {
        "of",
        "row",
        "reported",
        "cancelled",
        "queue",
    }
    assert not hasattr(AsyncClaim.__new__(AsyncClaim), "nonsense"), "nor does a half-made one, as copy makes it, hang"


@in_loop
async def test_a_claim_that_is_made_up(work: AsyncQueue) -> None:
    await work.push("x")
    claim = await claimed(work)
    for id, token in ((claim.id, "f" * 32), (claim.id + 1, claim.token)):
        await refuses(LeaseLost, AsyncClaim.of(work, id, token).complete)
    with pytest.raises(BadInput):
        AsyncClaim.of(work, "1 or 1=1", claim.token)  # type: ignore[arg-type]
    await AsyncClaim.of(work, claim.id, claim.token).complete()
    assert (await work.stats()).finished == 1


def test_connect_takes_the_same() -> None:
    assert _parameters(aio.connect)[:-1] == _parameters(tablequeue.connect)


@in_loop
async def test_a_life(place: Place) -> None:
    """Each async verb that is written by hand does the same as its synchronous one, with each of its options."""
    async with await aio.connect(place.url, schema=place.schema, name="ada") as db:
        queue = await db.create_queue("work", payload="text", max_attempts=2)
        assert await db.queues() == ["work"]
        assert (await db.queue("work")).definition == queue.definition
        first = await queue.push("a", headers={"x": 1}, now=at(0))
        assert await queue.push_many([*"bcde"], now=at(0)) == [first + i for i in range(1, 5)]
        claim = await claimed(queue, lease=30, now=at(5))
        assert (claim.id, claim.payload, claim.headers, claim.attempt) == (first, "a", {"x": 1}, 1)
        assert (claim.pushed_at, claim.popped_at, claim.lease_until) == (at(0), at(5), at(35))
        assert await queue.extend(claim, 60, now=at(6)) == await claim.extend(60, now=at(6)) == at(66)
        assert await queue.fail(claim, "no", retry_in=10, now=at(7)) == "scheduled"
        assert (await refuses(LeaseLost, claim.complete)).ids == (first,)
        assert await queue.pop(now=at(16), lease=1) is not None
        claim = await claimed(queue, now=at(17))
        assert claim.id == first, "at 17 it is due again, and before c"
        assert await claim.fail(ValueError("never"), retry_in=0, now=at(18)) == "dead"
        assert [error.error for error in (await queue.dead())[0].errors] == ["no", "ValueError: never\n"]
        batch = await queue.pop_many(2, lease=20, now=at(19))
        assert [claim.lease_until for claim in batch] == [at(39)] * 2
        await queue.release_many(batch[:1], delay=100, now=at(20))
        await queue.complete_many(batch[1:], now=at(21))
        assert (await refuses(LeaseLost, queue.complete_many, batch)).ids == tuple(sorted(ids_of(batch)))  # type: ignore[arg-type]
        assert (await queue.history())[0].finished_at == at(21)
        claim = await claimed(queue, now=at(22))
        await queue.release(claim, delay=5, now=at(22))
        claim = await claimed(queue, now=at(30))
        await queue.complete(claim, now=at(31))
        assert [message.finished_at for message in await queue.history()] == [at(31), at(21)]
        assert await queue.history_bounds() is not None
        assert await queue.redrive(ALL) == 1
        await queue.drop()
        await refuses(QueueNotFound, db.queue, "work")


@in_loop
async def test_receive(queue: Queue, work: AsyncQueue) -> None:
    first, second = queue.push_many([*"ab"])
    async with work.receive(lease=30) as message:
        assert message.id == first
        assert message.lease_until == message.popped_at + (at(30) - at(0))
    assert ids_of(queue.history()) == [first]
    with pytest.raises(ZeroDivisionError):
        async with work.receive():
            _ = 1 / 0
    (error,) = found(queue, second).errors
    assert "_ = 1 / 0" in error.error
    with pytest.raises(Empty):
        async with work.receive(wait=0):
            raise AssertionError("there is nothing to receive")


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_receive_releases_when_interrupted(queue: Queue, work: AsyncQueue, interrupt: type[BaseException]) -> None:
    id = queue.push("x")

    async def main() -> None:
        async with work.receive():
            raise interrupt

    with pytest.raises(interrupt):
        asyncio.run(main())
    message = found(queue, id)
    assert (message.state, message.attempts, message.errors) == ("ready", 0, ())


@in_loop
async def test_consume(queue: Queue, work: AsyncQueue) -> None:
    ids = queue.push_many([*"abcde"])
    seen = []
    async for message in work.consume(wait=0, prefetch=2):
        seen.append(message.id)
        await message.complete()
    assert sorted(seen) == ids
    assert counts(queue) == {"finished": 5}


@in_loop
async def test_consume_waits_for_what_others_push(queue: Queue, work: AsyncQueue) -> None:
    async def first() -> AsyncClaim:
        return await anext(work.consume())

    waiting = asyncio.create_task(first())
    await asyncio.sleep(0)
    id = await work.push("x")
    assert (await waiting).id == id


@in_loop
async def test_consume_releases_what_was_prefetched(queue: Queue, work: AsyncQueue) -> None:
    queue.push_many([*"abcde"])
    async with aclosing(work.consume(wait=0, prefetch=4)) as messages:  # type: ignore[type-var]
        mine = await anext(messages)
        assert counts(queue) == {"in_progress": 4, "ready": 1}
    assert counts(queue) == {"in_progress": 1, "ready": 4}
    assert {message.attempts for message in queue.peek()} == {0}
    await mine.complete()


# -- the event loop goes on ------------------------------------------------------------------------------------------


@in_loop
async def test_a_pop_that_waits_does_not_hold_up_the_loop(queue: Queue, behind: Gated, gate: Gate) -> None:
    id = queue.push("x")
    popping = asyncio.create_task(behind("claim").pop())
    await gate.is_reached()
    gate.opened.set()
    claim = await popping
    assert claim is not None
    assert claim.id == id


@in_loop
async def test_a_push_that_waits_for_a_lock_does_not_hold_up_the_loop(
    queue: Queue, work: AsyncQueue, place: Place
) -> None:
    with place.sa_engine().connect() as connection:
        lock(connection, place.table(queue.name))
        pushing = asyncio.create_task(work.push("x"))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not pushing.done()
        connection.rollback()
    id = await pushing
    assert ids_of(queue.peek()) == [id]


@in_loop
async def test_many_at_once_share_the_messages_out(queue: Queue, work: AsyncQueue) -> None:
    ids = await asyncio.gather(*(work.push(str(i)) for i in range(100)))
    claims = await asyncio.gather(*(claimed(work) for _ in ids))
    assert sorted(claim.id for claim in claims) == sorted(ids)
    await asyncio.gather(*(claim.complete() for claim in claims))
    assert counts(queue) == {"finished": 100}


# -- cancellation ----------------------------------------------------------------------------------------------------


def released(queue: Queue, id: int) -> bool:
    message = found(queue, id)
    return (message.state, message.attempts) == ("ready", 0)


@in_loop
async def test_the_claims_of_a_cancelled_pop_are_released(queue: Queue, behind: Gated, gate: Gate) -> None:
    id = queue.push("x")
    work = behind("claim")
    popping = asyncio.create_task(work.pop())
    await gate.is_reached()
    await cancelled(popping)
    gate.opened.set()
    await asyncio.to_thread(work._threads.close)
    assert released(queue, id)


@in_loop
async def test_messages_claimed_before_a_cancellation_are_released(queue: Queue, work: AsyncQueue) -> None:
    """The thread has finished, but the event loop has not noticed yet."""
    id = queue.push("x")
    popping = asyncio.create_task(work.pop())
    await asyncio.sleep(0)
    work._threads.close()  # waits for the thread, and blocks the loop
    assert counts(queue) == {"in_progress": 1}
    await cancelled(popping)
    await asyncio.to_thread(work._threads.close)
    assert released(queue, id)


def test_the_claims_of_a_pop_after_the_end_of_the_loop_are_released(queue: Queue, behind: Gated, gate: Gate) -> None:
    id = queue.push("x")
    work = behind("claim")

    async def main() -> None:
        popping = asyncio.create_task(work.pop())
        await gate.is_reached()
        await cancelled(popping)

    asyncio.run(main())
    gate.opened.set()
    work._threads.close()
    assert released(queue, id)


@in_loop
async def test_a_cancelled_pop_that_has_no_thread_yet_never_runs(queue: Queue, behind: Gated, gate: Gate) -> None:
    queue.push_many([*"ab"])
    work = behind("claim", threads=1)
    first, second = asyncio.create_task(work.pop()), asyncio.create_task(work.pop())
    await gate.is_reached()
    await cancelled(second)
    gate.opened.set()
    assert await first is not None
    await asyncio.to_thread(work._threads.close)
    assert counts(queue) == {"in_progress": 1, "ready": 1}


@in_loop
async def test_a_cancelled_pop_that_fails_has_no_effect(behind: Gated, gate: Gate, queue: Queue) -> None:
    work = behind("claim")
    popping = asyncio.create_task(work.pop())
    await gate.is_reached()
    await cancelled(popping)
    queue_is_gone = asyncio.create_task(work.drop())
    gate.opened.set()
    await queue_is_gone
    await asyncio.to_thread(work._threads.close)


@in_loop
async def test_a_worker_that_is_cancelled_at_work_releases_its_message(queue: Queue, work: AsyncQueue) -> None:
    id = queue.push("x")
    at_work = asyncio.Event()

    async def worker() -> None:
        async with work.receive(wait=PATIENCE):
            at_work.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(worker())
    await at_work.wait()
    assert counts(queue) == {"in_progress": 1}
    await cancelled(task)
    assert released(queue, id)


@in_loop
async def test_a_worker_that_is_cancelled_while_it_waits_holds_nothing(
    queue: Queue, work: AsyncQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = asyncio.Event()

    async def wait(self: AsyncWaiter, limit: float) -> None:
        waits.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(AsyncWaiter, "wait", wait)

    async def worker() -> None:
        async with work.receive(wait=PATIENCE):
            raise AssertionError("there is nothing to receive")

    task = asyncio.create_task(worker())
    await waits.wait()
    await cancelled(task)
    queue.push("x")
    await asyncio.to_thread(work._threads.close)
    assert counts(queue) == {"ready": 1}


@in_loop
async def test_a_completion_that_is_cancelled_takes_effect(queue: Queue, behind: Gated, gate: Gate) -> None:
    queue.push("x")
    work = behind("complete")

    async def worker() -> None:
        async with work.receive():
            pass

    task = asyncio.create_task(worker())
    await gate.is_reached()
    await cancelled(task)
    gate.opened.set()
    await asyncio.to_thread(work._threads.close)
    assert counts(queue) == {"finished": 1}


FINISHING: dict[str, tuple[Callable[[AsyncClaim], Coroutine[Any, Any, Any]], dict[str, int]]] = {
    "complete": (lambda claim: claim.complete(), {"finished": 1}),
    "fail": (lambda claim: claim.fail("why"), {"scheduled": 1}),
    "release": (lambda claim: claim.release(), {"ready": 1}),
}


@pytest.mark.parametrize("verb", FINISHING)
@in_loop
async def test_finishing_that_is_cancelled_before_it_has_a_thread_takes_effect(
    queue: Queue, behind: Gated, gate: Gate, verb: str
) -> None:
    finish, after = FINISHING[verb]
    queue.push("x")
    work = behind("find", threads=1)
    claim = await claimed(work)
    other = asyncio.create_task(work.find(1))
    await gate.is_reached()
    finishing = asyncio.create_task(finish(claim))
    await asyncio.sleep(0)
    await cancelled(finishing)
    gate.opened.set()
    await other
    await asyncio.to_thread(work._threads.close)
    assert counts(queue) == after


@in_loop
async def test_what_a_pop_completes_is_done_though_it_is_cancelled(queue: Queue, behind: Gated, gate: Gate) -> None:
    queue.push_many([*"xy"])
    work = behind("find", threads=1)
    claim = await claimed(work)
    other = asyncio.create_task(work.find(1))
    await gate.is_reached()
    popping = asyncio.create_task(work.pop(completing=claim))
    await asyncio.sleep(0)
    await cancelled(popping)
    gate.opened.set()
    await other
    await asyncio.to_thread(work._threads.close)
    assert counts(queue) == {"finished": 1, "ready": 1}, "and what it claims is given back"


@in_loop
async def test_a_chain(queue: Queue, work: AsyncQueue) -> None:
    ids = queue.push_many([*"abc"])
    got = []
    message = await work.pop()
    while message is not None:
        got.append(message.id)
        message = await work.pop(completing=message)
    assert got == ids
    assert await work.pop_many(2, completing=[]) == []
    assert counts(queue) == {"finished": 3}


def test_what_was_prefetched_is_released_when_the_program_is_cancelled(queue: Queue, work: AsyncQueue) -> None:
    """The iteration is not closed: the task ends, and the event loop with it."""
    first = queue.push_many([*"abcd"])[0]

    async def main() -> None:
        async for message in work.consume(prefetch=3):
            assert message.id == first
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    work._threads.close()
    assert counts(queue) == {"in_progress": 1, "ready": 3}
    assert {message.attempts for message in queue.peek()} == {0}


@in_loop
async def test_a_timeout_is_a_cancellation(queue: Queue, behind: Gated, gate: Gate) -> None:
    id = queue.push("x")
    work = behind("claim")
    limit = asyncio.timeout(None)

    async def pop() -> None:
        async with limit:
            await work.pop()

    popping = asyncio.create_task(pop())
    await gate.is_reached()
    limit.reschedule(0)
    with pytest.raises(TimeoutError):
        await popping
    gate.opened.set()
    await asyncio.to_thread(work._threads.close)
    assert released(queue, id)


@in_loop
async def test_what_a_cancelled_pop_removes_at_most_once_is_noted_as_lost(
    kind: Kind, place: Place, gate: Gate, own_threads: Callable[[int], Threads]
) -> None:
    database = place.open_with(gated(kind.engine_class, "take", gate))
    queue = database.create_queue("once", delivery="at_most_once")
    work = AsyncQueue(queue, own_threads(4))
    await refuses(BadInput, anext, work.consume(prefetch=2))
    ids = queue.push_many([*"ab"])
    popping = asyncio.create_task(work.pop())
    await gate.is_reached()
    await cancelled(popping)
    gate.opened.set()
    await asyncio.to_thread(work._threads.close)
    with pytest.raises(asyncio.CancelledError):
        async with work.receive():
            raise asyncio.CancelledError
    lost = queue.lost(older_than=0)
    assert ids_of(lost) == ids
    assert ["CancelledError" in error.error for message in lost for error in message.errors] == [True, True]


# -- connecting --------------------------------------------------------------------------------------------------------


@in_loop
async def test_closing_waits_for_what_runs_and_is_not_the_end(queue: Queue, behind: Gated, gate: Gate) -> None:
    queue.push_many([*"ab"])
    work = behind("claim")
    popping = asyncio.create_task(work.pop())
    await gate.is_reached()
    closing = asyncio.create_task(asyncio.to_thread(work._threads.close))
    gate.opened.set()
    await closing
    assert await popping is not None
    assert await work.pop() is not None


def test_the_event_loop_does_not_wait_for_an_undo(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call may end in the moment in which its task is cancelled, before `undo` waits for that."""
    undone: list[int] = []
    ended, threads = threading.Event(), Threads(2)

    class Late(Future[None]):
        def add_done_callback(self, fn: Callable[[Future[None]], object]) -> None:
            if fn.__module__ == Threads.__module__:
                self.set_result(None)
            super().add_done_callback(fn)

    def undo(future: Future[None]) -> None:
        undone.append(threading.get_ident())
        ended.set()

    async def cancelled() -> None:
        late = Late()
        late.set_running_or_notify_cancel()
        submit = threads._pool.submit
        monkeypatch.setattr(threads._pool, "submit", lambda call, *of: submit(call, *of) if of else late)
        task = asyncio.ensure_future(threads.run_or_undo(lambda: None, undo, to_end=False))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert ended.wait(PATIENCE)
    assert undone != [threading.get_ident()]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own(queue: Queue, work: AsyncQueue) -> None:
    asyncio.run(work.push("parent"))
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(asyncio.wait_for(work.push("child"), PATIENCE))
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    asyncio.run(work.push("parent"))
    assert sorted(message.payload for message in queue.peek()) == ["child", "parent", "parent"]


@in_loop
async def test_urls_and_engines_of_async_drivers(place: Place, kind: Kind) -> None:
    for driver in kind.engine_class.async_drivers:
        url = sa.make_url(place.url).set(drivername=f"{kind.name}+{driver}")
        async with await aio.connect(url, schema=place.schema) as db:
            assert isinstance(db.engine, AsyncEngine)
            assert db.engine.dialect.is_async
        engine = create_async_engine(url)
        async with await aio.connect(engine, schema=place.schema) as db:
            assert db.engine is engine
            assert await db.queues() == []


URLS = {
    "sqlite+aiosqlite:///work.db?timeout=3": "sqlite+pysqlite:///work.db?timeout=3",
    "postgresql+psycopg://ada:p%40ss@h/d": "postgresql+psycopg://ada:p%40ss@h/d",
    "postgresql+asyncpg://ada:p%40ss@h/d?ssl=require&prepared_statement_cache_size=0": (
        "postgresql+psycopg://ada:p%40ss@h/d?sslmode=require"
    ),
    "mysql+aiomysql://ada:p%40ss@h/d?charset=utf8mb4&echo=1": "mysql+pymysql://ada:p%40ss@h/d?charset=utf8mb4",
    "sqlite:///work.db": "sqlite:///work.db",
    "oracle://h/d": "oracle://h/d",
    "no url": "no url",
}


@pytest.mark.parametrize("url", URLS)
def test_the_url_for_calls_of_our_own(url: str) -> None:
    own = own_url(url)
    assert (own if isinstance(own, str) else own.render_as_string(hide_password=False)) == URLS[url]


@in_loop
async def test_connect_refuses() -> None:
    await refuses(BadUrl, aio.connect, "no url")
    await refuses(BadUrl, aio.connect, "oracle+oracledb_async://h/d")
    await refuses(Unreachable, aio.connect, "sqlite+aiosqlite:////no/such/folder/work.db")
    for threads in (0, -1, 1.5, True, "4"):
        await refuses(BadInput, partial(aio.connect, "sqlite:///work.db", threads=threads))  # type: ignore[arg-type]
