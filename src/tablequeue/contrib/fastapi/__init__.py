"""Queues in a FastAPI application: a lifespan, and dependencies that push in the session of the request.

See docs/fastapi.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import sqlalchemy as sa
import sqlalchemy.orm
from fastapi import Depends

from tablequeue import aio, connect
from tablequeue.aio import AsyncQueue, AsyncTopic
from tablequeue.errors import BadInput
from tablequeue.queue import MessageOptions, Queue
from tablequeue.topic import Topic
from tablequeue.verbs.push import OnConflict

if TYPE_CHECKING:  # importing it needs greenlet, which only async sessions need
    from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

Kind = Literal["queue", "topic"]
Certain = Literal["raise", "return", "renew"]
"""What `on_conflict` may be in a push that always returns an id."""


class Queues:
    """The queues and topics of an application, which gets them by dependencies.

    engine   the application's Engine; or its AsyncEngine, if its sessions are async.
    schema   the schema for `tablequeue.connect`.
    """

    def __init__(self, engine: sa.Engine | AsyncEngine, *, schema: str | None = None) -> None:
        self._engine = engine
        self._schema = schema
        self._names: dict[tuple[Kind, str], None] = {}  # a set in the order of the program
        self._opened: dict[tuple[Kind, str], Any] = {}

    def queue(self, name: str, session: Callable[..., Any]) -> Callable[..., Any]:
        """Return a dependency that gives the queue in the session of the request.

        session   the application's own dependency, which gives a Session or an AsyncSession. FastAPI calls it once for
                  each request, so an endpoint that also depends on it has the same session.

        It gives an `InSession`; with an AsyncEngine an `InAsyncSession`.
        """
        return self._dependency(("queue", name), session)

    def topic(self, name: str, session: Callable[..., Any]) -> Callable[..., Any]:
        """Return a dependency that gives the topic in the session of the request, as `queue` does."""
        return self._dependency(("topic", name), session)

    @asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        """Connect, and open the queues of the dependencies; at the end, close the connections.

        A missing queue is an error here, at the start of the application, and not in a request.
        """
        try:
            if isinstance(self._engine, sa.Engine):
                with await asyncio.to_thread(connect, self._engine, schema=self._schema) as database:
                    for kind, name in self._names:
                        self._opened[kind, name] = await asyncio.to_thread(getattr(database, kind), name)
                    yield
            else:
                async with await aio.connect(self._engine, schema=self._schema) as database:
                    for kind, name in self._names:
                        self._opened[kind, name] = await getattr(database, kind)(name)
                    yield
        finally:
            self._opened.clear()

    def _dependency(self, wanted: tuple[Kind, str], session: Callable[..., Any]) -> Callable[..., Any]:
        self._names[wanted] = None

        def in_session(session: Any = Depends(session)) -> Any:
            if wanted not in self._opened:
                raise BadInput(f"The {' '.join(wanted)} is not open.", "Make the application with this lifespan.")
            kind = InSession if isinstance(self._engine, sa.Engine) else InAsyncSession
            return kind(self._opened[wanted], session)

        return in_session


class WithKey(MessageOptions, total=False):
    """The options of a push of one message. A topic has group and headers."""

    key: str | None


class InSession:
    """A queue or a topic in the session of a request: pushed messages are committed by that session, or not at all."""

    def __init__(self, queue: Queue | Topic, session: sa.orm.Session) -> None:
        self.queue: Any = queue
        self.session = session

    @overload
    def push(self, payload: Any, *, on_conflict: Certain = "raise", **options: Unpack[WithKey]) -> int: ...
    @overload
    def push(self, payload: Any, *, on_conflict: OnConflict, **options: Unpack[WithKey]) -> int | None: ...
    def push(self, payload: Any, **options: Any) -> int | None:
        """Push a message as `Queue.push` does, and return its id."""
        id: int | None = self.queue.push(payload, connection=self.session, **options)
        return id

    @overload
    def push_many(
        self, payloads: Iterable[Any], *, on_conflict: Certain = "raise", **options: Unpack[MessageOptions]
    ) -> list[int]: ...
    @overload
    def push_many(
        self, payloads: Iterable[Any], *, on_conflict: OnConflict, **options: Unpack[MessageOptions]
    ) -> list[int | None]: ...
    def push_many(self, payloads: Iterable[Any], **options: Any) -> Any:
        """Push messages as `Queue.push_many` does, and return their ids."""
        return self.queue.push_many(payloads, connection=self.session, **options)


class InAsyncSession:
    """As `InSession`, in an async session: its pushes are awaited."""

    def __init__(self, queue: AsyncQueue | AsyncTopic, session: AsyncSession) -> None:
        self.queue: Any = queue
        self.session = session

    @overload
    async def push(self, payload: Any, *, on_conflict: Certain = "raise", **options: Unpack[WithKey]) -> int: ...
    @overload
    async def push(self, payload: Any, *, on_conflict: OnConflict, **options: Unpack[WithKey]) -> int | None: ...
    async def push(self, payload: Any, **options: Any) -> int | None:
        """Push a message as `AsyncQueue.push` does, and return its id."""
        id: int | None = await self.queue.push(payload, connection=self.session, **options)
        return id

    @overload
    async def push_many(
        self, payloads: Iterable[Any], *, on_conflict: Certain = "raise", **options: Unpack[MessageOptions]
    ) -> list[int]: ...
    @overload
    async def push_many(
        self, payloads: Iterable[Any], *, on_conflict: OnConflict, **options: Unpack[MessageOptions]
    ) -> list[int | None]: ...
    async def push_many(self, payloads: Iterable[Any], **options: Any) -> Any:
        """Push messages as `AsyncQueue.push_many` does, and return their ids."""
        return await self.queue.push_many(payloads, connection=self.session, **options)


__all__ = ["InAsyncSession", "InSession", "Queues"]
