"""Queues in a FastAPI application: a lifespan, and dependencies that push in the session of the request.

See docs/fastapi.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal

import sqlalchemy as sa
from fastapi import Depends

from tablequeue import aio, connect
from tablequeue.errors import BadInput

if TYPE_CHECKING:  # importing it needs greenlet, which only async sessions need
    from sqlalchemy.ext.asyncio import AsyncEngine

Kind = Literal["queue", "topic"]


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

    def queue(self, name: str, session: Callable[..., Any]) -> Callable[..., InSession]:
        """Return a dependency that gives the queue in the session of the request.

        session   the application's own dependency, which gives a Session or an AsyncSession. FastAPI calls it once for
                  each request, so an endpoint that also depends on it has the same session.
        """
        return self._dependency(("queue", name), session)

    def topic(self, name: str, session: Callable[..., Any]) -> Callable[..., InSession]:
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

    def _dependency(self, wanted: tuple[Kind, str], session: Callable[..., Any]) -> Callable[..., InSession]:
        self._names[wanted] = None

        def in_session(session: Any = Depends(session)) -> InSession:
            if wanted not in self._opened:
                raise BadInput(f"The {' '.join(wanted)} is not open.", "Make the application with this lifespan.")
            return InSession(self._opened[wanted], session)

        return in_session


class InSession:
    """A queue or a topic in the session of a request: pushed messages are committed by that session, or not at all."""

    def __init__(self, queue: Any, session: Any) -> None:
        self.queue = queue
        self.session = session

    def push(self, payload: Any, **options: Any) -> Any:
        """Push a message as `Queue.push` does, and return its id; to be awaited if the session is async."""
        return self.queue.push(payload, connection=self.session, **options)

    def push_many(self, payloads: Iterable[Any], **options: Any) -> Any:
        """Push messages as `Queue.push_many` does, and return their ids; to be awaited if the session is async."""
        return self.queue.push_many(payloads, connection=self.session, **options)


__all__ = ["InSession", "Queues"]
