"""A database for asyncio."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

import sqlalchemy as sa

from tablequeue import database
from tablequeue.aio.consumer import AsyncClaim, AsyncConsumer
from tablequeue.aio.queue import AsyncBatch, AsyncQueue
from tablequeue.aio.threads import Threads
from tablequeue.aio.topic import AsyncSubscription, AsyncTopic
from tablequeue.aio.verbs import AsyncVerbs, opens, same
from tablequeue.database import Database
from tablequeue.engines import ENGINES, engine_class
from tablequeue.errors import BadInput, DriverMissing
from tablequeue.queue import Queue

if TYPE_CHECKING:  # importing it needs greenlet, which only connection= and AsyncDatabase.engine need
    from sqlalchemy.ext.asyncio import AsyncEngine

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
    its_url = own_url(given.url if given else url)

    def opened() -> Database:
        if its_url is not url:
            # For `engine`, of which an async driver speaks. The import takes long, so not in the event loop.
            with suppress(ImportError):
                import_module("sqlalchemy.ext.asyncio")
        return database.connect(its_url, schema=schema, name=name)

    return AsyncDatabase(await asyncio.to_thread(opened), Threads(threads), given)


class AsyncDatabase(AsyncVerbs[Database]):
    """`Database` for asyncio. Made by `connect`; `async with` closes it."""

    def __init__(self, own: Database, threads: Threads, given: AsyncEngine | None) -> None:
        super().__init__(own, threads)
        self._given = given

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @cached_property
    def engine(self) -> AsyncEngine:
        """An AsyncEngine for your own transactions: the one given to `connect`, or one made at the first use.

        If `connect` was given the URL of a synchronous driver, the first use imports `sqlalchemy.ext.asyncio`. That may
        hold up the event loop for half a second, so import it when the program starts.
        """
        if self._given is not None:
            return self._given
        url = self._own.engine.url
        kind = url.get_backend_name()
        driver = next(iter(engine_class(kind).async_drivers), None)
        if driver is None:
            raise DriverMissing(
                f"tablequeue supports no async driver of {kind}, so there is no AsyncEngine.",
                "Use tablequeue.Queue and a synchronous connection, in a thread.",
            )
        try:
            from sqlalchemy.ext.asyncio import create_async_engine

            return create_async_engine(url.set(drivername=f"{kind}+{driver}"))
        except ImportError as error:
            raise DriverMissing(
                f"An AsyncEngine for {kind} needs greenlet and {driver} ({str(error).rstrip('.')}).",
                f"Install them: pip install 'sqlalchemy[asyncio]' {driver}.",
            ) from None

    @property
    def own(self) -> Database:
        """The synchronous database underneath, for threads of the library's own rooms."""
        return self._own

    create_queue = opens(Database.create_queue, AsyncQueue)
    queue = opens(Database.queue, AsyncQueue)
    subscription = opens(Database.subscription, AsyncSubscription)

    async def consumer(self, name: str) -> AsyncQueue | AsyncSubscription:
        """Open an existing queue, or a subscription as `events/mail`; see `Database.consumer`."""
        own: Any = await self._threads.run(partial(self._own.consumer, name))
        return (AsyncQueue if isinstance(own, Queue) else AsyncSubscription)(own, self._threads)

    create_topic = opens(Database.create_topic, AsyncTopic)
    topic = opens(Database.topic, AsyncTopic)

    batch = opens(Database.batch, AsyncBatch)
    queues = same(Database.queues)
    subscriptions = same(Database.subscriptions)
    topics = same(Database.topics)
    rename = same(Database.rename)
    identity = same(Database.identity)
    renew_identity = same(Database.renew_identity)
    has_schema = same(Database.has_schema)
    upgrade = same(Database.upgrade)
    doctor = same(Database.doctor)
    sizes = same(Database.sizes)
    install_procedures = same(Database.install_procedures)

    @property
    def schema_version(self) -> int:
        """The version of the tables of a queue on this kind of database; see `Database.schema_version`."""
        return self._own.schema_version

    async def close(self) -> None:
        """Wait for the calls that have begun, and close the connections. The database can still be used."""
        await asyncio.to_thread(self._threads.close)
        await asyncio.to_thread(self._own.close)
        if self._given is None and "engine" in self.__dict__:
            await self.engine.dispose()


def own_url(url: Any) -> Any:
    """Return the URL for the synchronous driver, if it names an async one. `connect` refuses a wrong URL."""
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


__all__ = ["AsyncClaim", "AsyncConsumer", "AsyncDatabase", "AsyncQueue", "AsyncSubscription", "AsyncTopic", "connect"]
