"""`connection=` of the async verbs: the caller's AsyncConnection or AsyncSession, through every async driver."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session

from tablequeue import LeaseLost, NewMessage, PayloadType, Queue, errors
from tablequeue.aio import AsyncClaim, AsyncQueue
from tablequeue.aio.threads import Threads
from tablequeue.errors import BadInput, BadPayload, DuplicateKey, QueueNotFound
from tablequeue.ext import context_of
from tablequeue.model.connection import own_session
from tests import support
from tests.async_support import PATIENCE, claimed, in_loop, lock, refuses
from tests.servers import KINDS, Kind, Place
from tests.support import at, counts, found, ids_of, snapshot

pytestmark = pytest.mark.quick

DRIVERS = [(kind, driver) for kind in KINDS for driver in kind.engine_class.async_drivers]

Caller = Callable[[], AbstractAsyncContextManager[Any]]


@pytest.fixture(params=DRIVERS, ids=lambda param: f"{param[0].name}+{param[1]}")
def driver(request: pytest.FixtureRequest) -> tuple[Kind, str]:
    pair: tuple[Kind, str] = request.param
    return pair


@pytest.fixture
def kind(driver: tuple[Kind, str]) -> Kind:
    return driver[0]


@pytest.fixture
def url(place: Place, driver: tuple[Kind, str]) -> sa.URL:
    return sa.make_url(place.url).set(drivername="+".join((driver[0].name, driver[1])))


@asynccontextmanager
async def registry(engine: AsyncEngine) -> AsyncIterator[Any]:
    """The session of a request, in all of its tasks."""
    sessions = async_scoped_session(async_sessionmaker(engine), lambda: "request")
    yield sessions
    await sessions.remove()


FORMS: dict[str, Callable[[AsyncEngine], AbstractAsyncContextManager[Any]]] = {
    "connection": lambda engine: engine.connect(),
    "session": AsyncSession,
    "registry of sessions": registry,
}


@pytest.fixture(params=FORMS.values(), ids=tuple(FORMS))
def caller(request: pytest.FixtureRequest, url: sa.URL) -> Caller:
    """`async with caller() as connection`, which has a commit and a rollback."""

    @asynccontextmanager
    async def open() -> AsyncIterator[Any]:
        engine = create_async_engine(url)
        try:
            async with request.param(engine) as connection:
                yield connection
        finally:
            await engine.dispose()

    return open


@pytest.fixture
def design() -> str:
    """Transactions do not depend on the order."""
    return "fifo"


@pytest.fixture
def work(queue: Queue) -> Iterator[AsyncQueue]:
    """The same queue as `queue`, in the same database."""
    threads = Threads(4)
    yield AsyncQueue(queue, threads)
    threads.close()


@pytest.mark.parametrize("size", [1, 1500])
@in_loop
async def test_a_push_is_seen_after_the_commit(queue: Queue, work: AsyncQueue, caller: Caller, size: int) -> None:
    async with caller() as connection:
        ids = await work.push_many(map(str, range(size)), connection=connection)
        ids.append(await work.push("last", headers={"a": 1}, connection=connection))
        assert counts(queue) == {}
        await connection.commit()
    assert ids_of(queue.pop_many(size + 1)) == ids


@pytest.mark.parametrize("size", [1, 1500])
@in_loop
async def test_a_push_that_is_rolled_back_never_was(queue: Queue, work: AsyncQueue, caller: Caller, size: int) -> None:
    async with caller() as connection:
        await work.push_many(map(str, range(size)), connection=connection)
        await work.push("last", connection=connection)
        await connection.rollback()
        assert counts(queue) == {}
        kept = await work.push("kept", connection=connection)
        await connection.commit()
    assert ids_of(queue.peek()) == [kept]


@in_loop
async def test_a_push_that_nobody_commits_never_was(queue: Queue, work: AsyncQueue, caller: Caller) -> None:
    async with caller() as connection:
        await work.push("x", connection=connection)
    assert counts(queue) == {}


@in_loop
async def test_the_callers_own_rows_go_with_the_message(
    queue: Queue, work: AsyncQueue, caller: Caller, place: Place
) -> None:
    business = sa.table("business", sa.column("n"), schema=place.schema)
    place.execute(f"create table {place.table('x').replace('tq_x', 'business')} (n integer)")
    async with caller() as connection:
        await connection.execute(sa.insert(business).values(n=1))
        await work.push("x", connection=connection)
        await connection.rollback()
        await work.push("y", connection=connection)
        await connection.execute(sa.insert(business).values(n=2))
        await connection.commit()
        assert list(await connection.execute(sa.select(business))) == [(2,)]
    assert [message.payload for message in queue.peek()] == ["y"]


@in_loop
async def test_a_pop_that_is_rolled_back_gives_the_message_back(queue: Queue, work: AsyncQueue, caller: Caller) -> None:
    ids = queue.push_many([*"abc"])
    async with caller() as connection:
        claims = await work.pop_many(3, connection=connection)
        assert ids_of(queue.peek()) == [claim.id for claim in claims] == ids
        await connection.rollback()
    assert {message.attempts for message in queue.peek()} == {0}
    await refuses(LeaseLost, claims[0].complete)
    assert sorted(ids_of(queue.pop_many(3))) == ids


@in_loop
async def test_a_pop_that_is_committed(queue: Queue, work: AsyncQueue, caller: Caller) -> None:
    id = queue.push("x", headers={"a": [1, None]}, now=at(0))
    async with caller() as connection:
        claim = await claimed(work, lease=30, connection=connection, now=at(5))
        assert (claim.id, claim.payload, claim.headers, claim.attempt) == (id, "x", {"a": [1, None]}, 1)
        assert (claim.pushed_at, claim.popped_at, claim.lease_until) == (at(0), at(5), at(35))
        await connection.commit()
    assert counts(queue) == {"in_progress": 1}
    await claim.complete()


@in_loop
async def test_a_take_is_finished_by_the_commit(queue: Queue, work: AsyncQueue, caller: Caller) -> None:
    ids = queue.push_many([*"ab"])
    async with caller() as connection:
        assert [claim.id for claim in await work.take_many(2, connection)] == ids
        await connection.rollback()
        assert counts(queue) == {"ready": 2}
        taken = await work.take(connection)
        assert taken is not None
        assert taken.payload == "a"
        await connection.commit()
    assert counts(queue) == {"ready": 1, "finished": 1}
    await refuses(BadInput, work.take, None)


Finish = Callable[[AsyncClaim, Any], Coroutine[Any, Any, Any]]
VERBS: dict[str, tuple[Finish, dict[str, int]]] = {
    "complete": (lambda claim, connection: claim.complete(connection=connection), {"finished": 1}),
    "fail": (lambda claim, connection: claim.fail("why", connection=connection), {"scheduled": 1}),
    "release": (lambda claim, connection: claim.release(connection=connection), {"ready": 1}),
    "extend": (lambda claim, connection: claim.extend(600, connection=connection), {"in_progress": 1}),
}


@pytest.mark.parametrize("verb", VERBS)
@in_loop
async def test_finishing_belongs_to_the_transaction(queue: Queue, work: AsyncQueue, caller: Caller, verb: str) -> None:
    finish, after = VERBS[verb]
    queue.push("x")
    claim = await claimed(work)
    before = snapshot(queue)
    async with caller() as connection:
        await finish(claim, connection)
        assert snapshot(queue) == before
        await connection.rollback()
        assert snapshot(queue) == before
        await finish(claim, connection)
        await connection.commit()
    assert counts(queue) == after
    assert snapshot(queue) != before


@in_loop
async def test_a_batch_belongs_to_the_transaction(queue: Queue, work: AsyncQueue, caller: Caller) -> None:
    queue.push_many([*"abcd"])
    claims = await work.pop_many(4)
    async with caller() as connection:
        for end, after in (
            (connection.rollback, {"in_progress": 4}),
            (connection.commit, {"finished": 2, "ready": 2}),
        ):
            await work.complete_many(claims[:2], connection=connection)
            await work.release_many(claims[2:], connection=connection)
            await end()
            assert counts(queue) == after


@in_loop
async def test_a_key_that_is_taken(queue: Queue, work: AsyncQueue, caller: Caller) -> None:
    """A refusal leaves the transaction usable, whatever it had to undo."""
    first = queue.push("x", key="k")
    async with caller() as connection:
        assert (await refuses(DuplicateKey, work.push, "y", key="k", connection=connection)).keys == ("k",)
        assert await work.push("y", key="k", on_conflict="skip", connection=connection) is None
        assert await work.push("y", key="k", on_conflict="return", connection=connection) == first
        batch = [NewMessage("a", key="l", headers={"n": 1}), NewMessage("b", key="k", delay=5), "c"]
        assert (await refuses(DuplicateKey, work.push_many, batch, connection=connection)).keys == ("k",)
        ids = await work.push_many(batch, on_conflict="skip", connection=connection)
        assert ids[1] is None
        await connection.commit()
    assert ids_of(queue.peek()) == [first, ids[0], ids[2]]


@in_loop
async def test_a_refusal_leaves_the_transaction_usable(queue: Queue, work: AsyncQueue, caller: Caller) -> None:
    queue.push("x", now=at(0))
    old = await claimed(work, lease=1, now=at(0))
    new = await claimed(work, now=at(1))
    async with caller() as connection:
        pushed = await work.push("y", connection=connection)
        await refuses(LeaseLost, old.complete, connection=connection)
        await refuses(LeaseLost, old.fail, connection=connection)
        await refuses(BadPayload, work.push, 1, connection=connection)
        await connection.commit()
    assert found(queue, pushed).state == "ready"
    await new.complete()


PAYLOADS: dict[str, list[Any]] = {
    "json": [None, "null", "é\0\\", [1.5, {"a": 10**20, "b": [True, None]}], '"text"'],
    "text": ["", "é\\ \n\t%s :x", '{"a": 1}'],
    "bytes": [b"", bytes(range(256))],
}


@pytest.mark.parametrize("payload", PAYLOADS)
@in_loop
async def test_payloads_come_back_exactly(place: Place, caller: Caller, payload: PayloadType) -> None:
    queue = place.open().create_queue("payloads", payload=payload)
    threads = Threads(1)
    work = AsyncQueue(queue, threads)
    headers: list[dict[str, Any]] = [{}, {"é": [None, 1]}]
    async with caller() as connection:
        for one in PAYLOADS[payload]:
            for many in (1, 1000):
                await work.push_many([one] * many, headers=headers[many > 1], connection=connection)
                claims = await work.pop_many(many, connection=connection)
                assert [(claim.payload, claim.headers) for claim in claims] == [(one, headers[many > 1])] * many
        await claims[0].fail("é %s", retry_in=0, connection=connection)
        await connection.commit()
    assert found(queue, claims[0].id).errors[0].error == "é %s"
    threads.close()


@in_loop
async def test_the_callers_settings_stay_as_they_were(queue: Queue, work: AsyncQueue, caller: Caller) -> None:
    queue.push("x")
    async with caller() as connection:
        await (await claimed(work, connection=connection)).complete(connection=connection)
        rows = await connection.execute(sa.select(sa.literal({"a": 1}, sa.JSON).label("one")))
        assert rows.mappings().all() == [{"one": {"a": 1}}]


@in_loop
async def test_sync_verbs_in_run_sync(queue: Queue, caller: Caller) -> None:
    """Synchronous code of the caller can still use the synchronous verbs."""

    def work(connection: sa.Connection | Session) -> None:
        queue.push("x", connection=connection)
        support.claimed(queue, connection=connection).complete(connection=connection)

    async with caller() as connection:
        await own_session(connection).run_sync(work)
        assert counts(queue) == {}
        await connection.commit()
    assert counts(queue) == {"finished": 1}


@in_loop
async def test_a_driver_error_is_one_of_ours(queue: Queue, work: AsyncQueue, caller: Caller, place: Place) -> None:
    place.execute(f"drop table {place.table(queue.name)}")
    async with caller() as connection:
        await refuses(QueueNotFound, work.push, "x", connection=connection)
        await connection.rollback()


@in_loop
async def test_a_transaction_that_had_failed_says_so(
    queue: Queue, work: AsyncQueue, caller: Caller, kind: Kind
) -> None:
    async with caller() as connection:
        with pytest.raises(sa.exc.DBAPIError):
            await connection.execute(sa.text("select no_such_column"))
        if kind.name == "postgresql":
            await refuses(errors.DatabaseError, work.push, "x", connection=connection)
        await connection.rollback()
        await work.push("y", connection=connection)


@in_loop
async def test_waiting_for_a_lock_does_not_hold_up_the_loop(
    queue: Queue, work: AsyncQueue, caller: Caller, place: Place
) -> None:
    with place.sa_engine().connect() as other:
        lock(other, place.table(queue.name))
        async with caller() as connection:
            pushing = asyncio.create_task(work.push("x", connection=connection))
            for _ in range(100):
                await asyncio.sleep(0)
            assert not pushing.done()
            other.rollback()
            id = await pushing
            await connection.commit()
    assert ids_of(queue.peek()) == [id]


# -- what is no connection ---------------------------------------------------------------------------------------------


@in_loop
async def test_an_async_connection_is_not_for_a_sync_verb(queue: Queue, work: AsyncQueue, caller: Caller) -> None:
    async with caller() as connection:
        await connection.execute(sa.text("select 1"))
        within = await own_session(connection).run_sync(
            lambda sync: sync if isinstance(sync, sa.Connection) else sync.connection()
        )
        for wrong in (connection, within, within.connection.driver_connection):
            refusal = support.refuses(BadInput, queue.push, "x", connection=wrong)
            assert "tablequeue.aio" in refusal.remedy
        await refuses(BadInput, work.push, "x", connection=within.connection.driver_connection)
    assert counts(queue) == {}


@in_loop
async def test_a_sync_connection_is_not_for_an_async_verb(queue: Queue, work: AsyncQueue, place: Place) -> None:
    with place.sa_engine().connect() as connection, Session(connection) as session:
        for wrong in (connection, session, place.sa_engine(), "sqlite://"):
            refusal = await refuses(BadInput, work.push, "x", connection=wrong)
            assert "AsyncConnection" in refusal.remedy
    assert counts(queue) == {}


@in_loop
async def test_a_session_that_is_bound_to_nothing(queue: Queue, work: AsyncQueue) -> None:
    queue.push("a")
    async with AsyncSession() as session:
        await refuses(BadInput, work.push, "b", connection=session)
        await refuses(BadInput, work.pop, connection=session)
        await refuses(BadInput, work.take, session)
    assert counts(queue) == {"ready": 1}


@in_loop
async def test_a_connection_to_another_database(queue: Queue, work: AsyncQueue, kind: Kind, tmp_path: Any) -> None:
    if kind.name == "sqlite":
        pytest.skip("the other database is this one")
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'other.db'}")
    async with engine.connect() as connection:
        await refuses(BadInput, work.push, "x", connection=connection)
    await engine.dispose()
    assert counts(queue) == {}


@pytest.mark.parametrize("step", ["_hold", "_let_go"])
@in_loop
async def test_a_cancelled_take_leaves_no_lock_beside_the_transaction(
    queue: Queue, work: AsyncQueue, caller: Caller, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Wherever it is cancelled: before, while or after a thread holds what the call has looked at."""
    id = queue.push("x")
    runner = context_of(queue).runner
    begun, cancelled, ended = (threading.Event() for _ in range(3))
    original = getattr(runner, step)

    def paused(*args: Any) -> Any:
        result = original(*args) if step == "_hold" else None
        begun.set()
        assert cancelled.wait(PATIENCE)
        result = result or original(*args)
        ended.set()
        return result

    async with caller() as connection:
        with monkeypatch.context() as patch:
            patch.setattr(runner, step, paused)
            taking = asyncio.create_task(work.take(connection))
            while not (begun.is_set() or taking.done()):
                await asyncio.sleep(0)
            taking.cancel()
            await asyncio.wait([taking])
            cancelled.set()
            assert not begun.is_set() or await asyncio.to_thread(ended.wait, PATIENCE)
        await connection.rollback()
    while len(runner.pool._all) != len(runner.pool._idle):
        await asyncio.sleep(0)
    assert ids_of(queue.pop_many(2)) == [id]
