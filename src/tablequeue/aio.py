"""The same verbs for asyncio: `AsyncDatabase`, `AsyncQueue`, `AsyncClaim`. One implementation underneath.

Over 400 lines, because they are the signatures and docstrings of three public classes.

Each call runs its synchronous verb in a thread (threads.py has the cost), so that waiting for the database never holds
up the event loop. With `connection=` it runs on the caller's async driver instead, in SQLAlchemy's `run_sync`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from datetime import datetime
from functools import cached_property, partial, wraps
from inspect import signature
from time import monotonic
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

import sqlalchemy as sa

from tablequeue import database, telemetry
from tablequeue.aiowait import AsyncWaiter
from tablequeue.database import Database
from tablequeue.definition import Definition, Duration, in_seconds
from tablequeue.engines import ENGINES, engine_class
from tablequeue.errors import BadInput, DriverMissing, Empty, TablequeueError
from tablequeue.message import Claim
from tablequeue.operations import finish
from tablequeue.operations.claim import check_prefetch
from tablequeue.operations.context import seconds
from tablequeue.operations.doctor import Finding
from tablequeue.operations.wait import INFINITE
from tablequeue.queue import Queue
from tablequeue.states import FailedState
from tablequeue.threads import Threads

if TYPE_CHECKING:  # importing it needs greenlet, which only connection= and AsyncDatabase.engine need
    from sqlalchemy.ext.asyncio import AsyncEngine

T = TypeVar("T")
P = ParamSpec("P")

# Calls of one AsyncDatabase that are in the database at the same moment; the others wait for their turn. With 1,000
# pushes at once PostgreSQL, which flushes commits together, took 900 a second by 1 thread (two cores), 1,700 by 8,
# 2,700 by 16, 3,500 by 32. SQLite has one writer: 4 to 32 threads make no difference.
THREADS = 16


async def connect(
    url: str | sa.URL | AsyncEngine, *, schema: str | None = None, name: str | None = None, threads: int = THREADS
) -> AsyncDatabase:
    """A database, reached and checked: `tablequeue.connect` for asyncio.

    url      a SQLAlchemy URL, of a synchronous or an async driver, or an AsyncEngine, of which the URL is used: calls
             without connection= go through the engine's synchronous driver, as sqlite3 or psycopg.
    threads  how many calls may be in the database at once, each on a connection of its own.
    """
    if not isinstance(threads, int) or isinstance(threads, bool) or threads < 1:
        raise BadInput(f"threads is {threads!r}.", "Give a whole number from 1 on.")
    given: Any = url if hasattr(url, "sync_engine") else None
    own_url = _own_url(given.url if given else url)
    own = await asyncio.to_thread(database.connect, own_url, schema=schema, name=name)
    return AsyncDatabase(own, Threads(threads), given)


def _opens(
    verb: Callable[Concatenate[Database, P], Queue],
) -> Callable[Concatenate[AsyncDatabase, P], Coroutine[Any, Any, AsyncQueue]]:
    """Make a verb of `AsyncDatabase` of one of `Database`: the same, but that it returns an `AsyncQueue`."""

    @wraps(verb)
    async def mutant(self: AsyncDatabase, /, *args: P.args, **options: P.kwargs) -> AsyncQueue:
        queue = await self._threads.run(partial(verb, self._database, *args, **options))
        return AsyncQueue(queue, self._threads)

    opener: Any = mutant
    opener.__signature__ = signature(verb).replace(return_annotation="AsyncQueue")  # for help()
    return opener


class AsyncDatabase:
    """`Database` for asyncio. Made by `connect`; `async with` closes it."""

    def __init__(self, own: Database, threads: Threads, given: AsyncEngine | None) -> None:
        self._database = own
        self._threads = threads
        self._given = given

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Async{repr(self._database)[1:]}"

    @cached_property
    def engine(self) -> AsyncEngine:
        """An AsyncEngine for your own transactions: the one given to `connect`, or one made at the first use."""
        if self._given is not None:
            return self._given
        url = self._database.engine.url
        kind = url.get_backend_name()
        driver = next(iter(engine_class(kind).async_drivers))
        try:
            from sqlalchemy.ext.asyncio import create_async_engine

            return create_async_engine(url.set(drivername=f"{kind}+{driver}"))
        except ImportError as error:
            raise DriverMissing(
                f"An AsyncEngine for {kind} needs greenlet and {driver} ({str(error).rstrip('.')}).",
                f"Install them: pip install 'sqlalchemy[asyncio]' {driver}.",
            ) from None

    create_queue = _opens(Database.create_queue)
    queue = _opens(Database.queue)

    async def queues(self) -> list[str]:
        """Return the names of all queues, sorted."""
        return await self._threads.run(self._database.queues)

    async def has_schema(self) -> bool:
        """Whether the schema that `connect` was given is there; see `Database.has_schema`."""
        return await self._threads.run(self._database.has_schema)

    @property
    def schema_version(self) -> int:
        """The version of the tables of a queue on this kind of database; see `Database.schema_version`."""
        return self._database.schema_version

    async def upgrade(self) -> dict[str, int]:
        """Bring the tables of all queues to the schema version of this tablequeue; see `Database.upgrade`."""
        return await self._threads.run(self._database.upgrade)

    async def doctor(self, name: str | None = None) -> list[Finding]:
        """Find what endangers the queues on this database, each with its remedy; see `Database.doctor`."""
        return await self._threads.run(partial(self._database.doctor, name))

    async def install_procedures(self, name: str) -> list[str]:
        """Make or replace the stored procedures of a queue; see `Database.install_procedures`."""
        return await self._threads.run(partial(self._database.install_procedures, name))

    async def close(self) -> None:
        """Wait for the calls that have begun, and close the connections. The database can still be used."""
        await asyncio.to_thread(self._threads.close)
        await asyncio.to_thread(self._database.close)
        if self._given is None and "engine" in self.__dict__:
            await self.engine.dispose()


def _same(verb: Callable[Concatenate[Queue, P], T]) -> Callable[Concatenate[AsyncQueue, P], Coroutine[Any, Any, T]]:
    """Make a verb of `AsyncQueue` of one of `Queue`: the same parameters, types and docstring."""

    @wraps(verb)
    async def mutant(self: AsyncQueue, /, *args: P.args, **options: P.kwargs) -> T:
        return await self._call(self._threads.run, partial(verb, self._queue), *args, **options)

    return mutant


def _finish(verb: Callable[Concatenate[Claim, P], T]) -> Callable[Concatenate[AsyncClaim, P], Coroutine[Any, Any, T]]:
    """Make a verb of `AsyncClaim` of one of `Claim`."""

    @wraps(verb)
    async def mutant(self: AsyncClaim, /, *args: P.args, **options: P.kwargs) -> T:
        queue = self.queue
        run = queue._threads.run_to_end  # noqa: SLF001  (a claim is a part of its queue)
        return await queue._call(run, partial(verb, self.claim), *args, **options)  # noqa: SLF001

    return mutant


class AsyncClaim:
    """A popped message, with the attributes of `Claim` and its verbs, which are awaited.

    They act only while the claim is held; afterwards they change nothing and raise `LeaseLost`. `connection=` is that
    of `AsyncQueue`, and `now=` that of `Queue`.
    """

    __slots__ = ("claim", "queue")

    id: int
    payload: Any
    headers: dict[str, Any]
    attempts: int
    token: str
    pushed_at: datetime
    popped_at: datetime
    lease_until: datetime | None
    due_at: datetime | None
    priority: int
    group: str | None
    key: str | None

    def __init__(self, queue: AsyncQueue, claim: Claim) -> None:
        self.queue = queue
        self.claim = claim

    @classmethod
    def of(cls, queue: AsyncQueue, id: int, token: str, attempts: int = 0) -> Self:
        """Make a claim from its id and token alone, to finish it; see `Claim.of`."""
        return cls(queue, Claim.of(queue._queue, id, token, attempts))  # noqa: SLF001

    def __getattr__(self, name: str) -> Any:
        if name in AsyncClaim.__annotations__:
            return getattr(self.claim, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"<Async{repr(self.claim)[1:]}"

    complete = _finish(Claim.complete)
    fail = _finish(Claim.fail)
    release = _finish(Claim.release)
    extend = _finish(Claim.extend)


class AsyncQueue:
    """`Queue` for asyncio: every verb does what its namesake there does. Made by `AsyncDatabase`.

    `connection=` takes a SQLAlchemy AsyncConnection or AsyncSession: the verb then acts inside that transaction and
    never commits it. `now=` and durations are those of `Queue`.

    A task may be cancelled at every `await`. A call that is in the database by then goes on, and takes effect. What a
    pop claims is given back. `complete`, `fail`, `release`, and what a pop completes, are done even if they still
    waited for a thread.
    """

    def __init__(self, queue: Queue, threads: Threads) -> None:
        self._queue = queue
        self._threads = threads

    def __repr__(self) -> str:
        return f"<Async{repr(self._queue)[1:]}"

    @property
    def name(self) -> str:
        return self._queue.name

    @property
    def definition(self) -> Definition:
        return self._queue.definition

    # -- producing -------------------------------------------------------------------------------------------------

    push = _same(Queue.push)
    push_many = _same(Queue.push_many)  # the payloads are read in the thread

    # -- consuming -------------------------------------------------------------------------------------------------

    async def pop(
        self,
        *,
        lease: Duration | None = None,
        completing: AsyncClaim | None = None,
        connection: Any = None,
        now: datetime | None = None,
    ) -> AsyncClaim | None:
        """Claim the next message under a lease; None if no message is ready.

        lease        seconds, or a timedelta; the queue's lease if not given.
        completing   the previous message, to complete; see `Queue.pop`.
        """
        done = () if completing is None else (completing,)
        claims = await self.pop_many(1, lease=lease, completing=done, connection=connection, now=now)
        return claims[0] if claims else None

    async def pop_many(
        self,
        n: int,
        *,
        lease: Duration | None = None,
        completing: Iterable[AsyncClaim] = (),
        connection: Any = None,
        now: datetime | None = None,
    ) -> list[AsyncClaim]:
        """Claim up to `n` messages in one round trip, in the queue's order; an empty list if none is ready.

        lease        seconds, or a timedelta; the queue's lease if not given.
        completing   the previous batch, to complete; see `Queue.pop_many`.
        """
        done = [message.claim for message in completing]
        run = partial(self._threads.run_or_undo, undo=self._put_back, to_end=bool(done))
        claims = await self._call(
            run, self._queue.pop_many, n, lease=lease, completing=done, connection=connection, now=now
        )
        return [AsyncClaim(self, claim) for claim in claims]

    async def take(self, connection: Any, *, now: datetime | None = None) -> AsyncClaim | None:
        """Remove the next message in the transaction of `connection`, or None if none is ready; see `Queue.take`."""
        claims = await self.take_many(1, connection, now=now)
        return claims[0] if claims else None

    async def take_many(self, n: int, connection: Any, *, now: datetime | None = None) -> list[AsyncClaim]:
        """Remove up to `n` messages in the transaction of `connection`, in the queue's order, as `take` does."""
        claims = await self._within(connection, self._queue.take_many, n, now=now)
        return [AsyncClaim(self, claim) for claim in claims]

    async def complete(self, message: AsyncClaim, *, connection: Any = None, now: datetime | None = None) -> None:
        """Complete the message: it moves to the history, or is deleted if the queue keeps none.

        `LeaseLost`, and no change, if the claim is no longer held.
        """
        await message.complete(connection=connection, now=now)

    async def complete_many(
        self, messages: Iterable[AsyncClaim], *, connection: Any = None, now: datetime | None = None
    ) -> None:
        """Complete all messages of a batch in one round trip; `LeaseLost.ids` names those no longer held."""
        claims, run = [message.claim for message in messages], self._threads.run_to_end
        await self._call(run, self._queue.complete_many, claims, connection=connection, now=now)

    async def fail(
        self,
        message: AsyncClaim,
        error: str | BaseException = "",
        *,
        retry_in: Duration | None = None,
        retry: bool = True,
        connection: Any = None,
        now: datetime | None = None,
    ) -> FailedState:
        """Fail the attempt: keep the error, and retry the message later; return its new state. See `Queue.fail`."""
        return await message.fail(error, retry_in=retry_in, retry=retry, connection=connection, now=now)

    async def release(
        self, message: AsyncClaim, *, delay: Duration = 0, connection: Any = None, now: datetime | None = None
    ) -> None:
        """Give the message back unprocessed: it is ready after `delay`, and the attempt does not count."""
        await message.release(delay=delay, connection=connection, now=now)

    async def release_many(
        self,
        messages: Iterable[AsyncClaim],
        *,
        delay: Duration = 0,
        connection: Any = None,
        now: datetime | None = None,
    ) -> None:
        """Give a batch back, as `release` does; `LeaseLost.ids` names the messages that are no longer held."""
        claims, run = [message.claim for message in messages], self._threads.run_to_end
        await self._call(run, self._queue.release_many, claims, delay=delay, connection=connection, now=now)

    async def extend(
        self,
        message: AsyncClaim,
        seconds: Duration | None = None,
        *,
        connection: Any = None,
        now: datetime | None = None,
    ) -> datetime:
        """Extend the lease to `seconds` (or a timedelta) from now, and return its new end. See `Queue.extend`."""
        return await message.extend(seconds, connection=connection, now=now)

    @asynccontextmanager
    async def receive(self, *, wait: Duration = 0, lease: Duration | None = None) -> AsyncIterator[AsyncClaim]:
        """Pop one message for an `async with` block; complete it when the block ends, fail it when the block raises.

        Waits up to `wait` (seconds, or a timedelta) for a message, then raises `Empty`. An exception fails the message
        with its traceback and goes on to the caller; a cancellation (or KeyboardInterrupt, SystemExit) releases it
        (where delivery is at most once it fails it too).
        """
        with self._waiter() as waiter:
            batch = await self._next(waiter, 1, lease, wait)
        # No await from here to the block: a cancellation would strand the message.
        if not batch:
            raise Empty(
                f"No message became ready in {self.name!r} within {in_seconds(wait)} s.", "Wait longer, or push one."
            )
        (message,) = batch
        try:
            with telemetry.processing(self.name, (message,)):
                yield message
        except Exception as error:
            await message.fail(error)
            raise
        except BaseException as interrupt:
            await self._threads.run_to_end(partial(finish.abandon, self._queue.context, (message.claim,), interrupt))
            raise
        await message.complete()

    async def consume(
        self, *, wait: Duration | None = None, lease: Duration | None = None, prefetch: int = 1
    ) -> AsyncIterator[AsyncClaim]:
        """Iterate over messages as they become ready. Finish each of them by `complete`, `fail` or `release`.

        Ends after `wait` (seconds, or a timedelta) without a message; None: never. Claims `prefetch` messages at a
        time. When the iteration is closed, those not yet handed over are released: at once in `contextlib.aclosing`,
        else when the event loop comes to it.
        """
        check_prefetch(self._queue.context, prefetch)
        with self._waiter() as waiter:
            while batch := await self._next(waiter, prefetch, lease, wait):
                handed = 0
                try:
                    for message in batch:
                        handed += 1
                        yield message
                finally:
                    if handed < len(batch):
                        await self.release_many(batch[handed:])

    # -- looking ---------------------------------------------------------------------------------------------------

    peek = _same(Queue.peek)
    find = _same(Queue.find)
    stats = _same(Queue.stats)
    lost = _same(Queue.lost)
    history = _same(Queue.history)
    history_bounds = _same(Queue.history_bounds)

    async def history_batches(self, low: int, high: int, size: int) -> AsyncIterator[list[Sequence[Any]]]:
        """Yield finished messages with ids from `low` to `high`, highest first; see `Queue.history_batches`."""
        batches = self._queue.history_batches(low, high, size)
        while (batch := await self._threads.run(partial(next, batches, None))) is not None:
            yield batch

    # -- keeping ---------------------------------------------------------------------------------------------------

    dead = _same(Queue.dead)
    redrive = _same(Queue.redrive)  # a function that chooses is called in the thread
    purge_dead = _same(Queue.purge_dead)
    purge_history = _same(Queue.purge_history)
    purge = _same(Queue.purge)
    drop = _same(Queue.drop)

    # -- private ---------------------------------------------------------------------------------------------------

    async def _call(
        self,
        run: Callable[[Callable[[], T]], Coroutine[Any, Any, T]],
        verb: Callable[..., T],
        *args: Any,
        connection: Any = None,
        **options: Any,
    ) -> T:
        """The verb in a thread, by `run`; or in the caller's transaction."""
        if connection is None:
            return await run(partial(verb, *args, **options))
        return await self._within(connection, verb, *args, **options)

    @staticmethod
    async def _within(connection: Any, verb: Callable[..., T], *args: Any, **options: Any) -> T:
        if not hasattr(connection, "run_sync"):
            raise BadInput(
                f"connection is a {type(connection).__name__}.", "Pass a SQLAlchemy AsyncConnection or AsyncSession."
            )
        return await connection.run_sync(lambda sync: verb(*args, connection=sync, **options))

    async def _next(
        self, waiter: AsyncWaiter, n: int, lease: Duration | None, wait: Duration | None
    ) -> list[AsyncClaim]:
        """Pop up to `n` messages as soon as there are any; none after `wait`."""
        limit = INFINITE if wait is None else seconds(wait, "wait")
        idle_since = monotonic()
        while not (batch := await self.pop_many(n, lease=lease)):
            left = limit - (monotonic() - idle_since)
            if left <= 0:
                return []
            await waiter.wait(left)
        waiter.found()
        return batch

    def _waiter(self) -> AsyncWaiter:
        return AsyncWaiter(self._queue, self._threads)

    def _put_back(self, popped: Future[list[Claim]]) -> None:
        try:
            finish.abandon(self._queue.context, popped.result(), asyncio.CancelledError())
        except TablequeueError:
            # No task is left to raise it in. The pop failed, or the release did, and the lease ends by itself.
            return


def _own_url(url: Any) -> Any:
    """Return the URL for the synchronous driver, if it names an async one. `connect` refuses what is wrong with it."""
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        return url
    kind, _, driver = parsed.drivername.partition("+")
    if kind not in ENGINES or driver not in engine_class(kind).async_drivers:
        return url
    engine_type = engine_class(kind)
    renamed = engine_type.async_drivers[driver]
    query = {renamed.get(name, name): value for name, value in parsed.query.items()}
    query.pop("", None)
    return parsed.set(drivername=f"{kind}+{engine_type.drivers[0]}", query=query)


__all__ = ["AsyncClaim", "AsyncDatabase", "AsyncQueue", "connect"]
