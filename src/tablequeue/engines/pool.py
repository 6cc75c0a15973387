"""The pool of raw connections of our own, which SQLAlchemy makes and configures."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from math import inf
from threading import Condition
from time import monotonic, sleep

import sqlalchemy as sa

from tablequeue.engines.base import EngineBase
from tablequeue.engines.connection import RawConnection
from tablequeue.engines.silence import Watch
from tablequeue.errors import ConnectionLost, DatabaseError, Locked, QueueNotFound, Unreachable
from tablequeue.model.redaction import is_secret

# The remedy if a database file is missing that a connection would create.
FILE_REMEDY = "Correct the path in the URL; or make a queue, and the file with it, by create_queue() or `queue create`."

# Seconds that a fork waits for calls in other threads, on an engine that must have no connection open then.
FORK_PATIENCE = 2.0


class Pool:
    """Raw connections. Each concurrent call uses one, which is kept for later calls.

    They are made as those of the caller's pool are, with its events, but apart from it: their settings are changed for
    good, and no call of ours waits until the caller's own code gives a connection of that pool back.
    """

    def __init__(self, sa_engine: sa.Engine, engine: EngineBase) -> None:
        self._sa_engine = sa_engine
        self._engine = engine
        recycle: int = sa_engine.pool._recycle  # noqa: SLF001  (SQLAlchemy has no public way to the option pool_recycle)
        self._longest = recycle if recycle > -1 else inf
        self._begin()

    def _begin(self) -> None:
        self._idle: deque[RawConnection] = deque()
        self._all: list[RawConnection] = []
        self._gate = Condition()
        self._forking = False
        self._opening = 0
        self._watch = Watch(lambda: self.discard(self.connect()))

    def open(self, *, creating: bool = False) -> RawConnection:
        """Return an idle connection that the server has not closed and that is not too old, or a new one."""
        while True:
            try:
                raw = self._idle.pop()
            except IndexError:
                return self.connect(creating=creating)
            now = monotonic()
            if now - raw.opened_at <= self._longest and (now - raw.used_at < raw.look_after or raw.is_open()):
                return raw
            self.discard(raw)

    def connect(self, *, creating: bool = False) -> RawConnection:
        """Return a new connection. In a fork it waits until the fork is done."""
        if not creating and (path := self._engine.missing()):
            raise QueueNotFound(f"There is no database file {path}, and so no queue.", FILE_REMEDY)
        with self._gate:
            self._gate.wait_for(lambda: not self._forking)
            self._opening += 1
        try:
            return self._opened()
        finally:
            with self._gate:
                self._opening -= 1

    def connect_at_once(self) -> RawConnection:
        """Return a new connection. In a fork it raises `Locked`."""
        if self._forking:
            raise Locked("The process is being forked.", "Try again.")
        return self.connect()

    def keep(self, raw: RawConnection) -> None:
        """Keep a connection, whose transaction has ended, for later calls."""
        raw.used_at = monotonic()
        self._idle.append(raw)

    def discard(self, raw: RawConnection) -> None:
        """Close a connection for good."""
        try:
            raw.close()
        except Exception:
            # A connection that cannot be closed needs no more care. The error to report is the one before.
            pass
        self._all.remove(raw)  # last: a fork waits for it

    def close_idle(self) -> None:
        self._discard_all(self._idle)

    def close_of_caller(self) -> None:
        """Close the idle connections of SQLAlchemy's pool, which is the caller's."""
        # Pools of other classes would also close the connections that are checked out.
        if isinstance(self._sa_engine.pool, (sa.QueuePool, sa.NullPool)):
            self._sa_engine.dispose()

    # -- forks -------------------------------------------------------------------------------------------------------

    def close_before_fork(self, close_listener: Callable[[], None]) -> None:
        """Close all connections: idle ones now, others when their calls end.

        A call that needs another one waits for `open_after_fork`.
        """
        with self._gate:
            self._forking = True
        before, self._idle = self._idle, _Closing(self.discard)
        close_listener()
        deadline = monotonic() + FORK_PATIENCE
        while (self._all or self._opening) and monotonic() < deadline:
            self._discard_all(before)
            sleep(0.001)
        self.close_of_caller()

    def open_after_fork(self) -> None:
        self._idle = deque()
        with self._gate:
            self._forking = False
            self._gate.notify_all()

    def forget_parent(self) -> None:
        """In a forked child: drop the parent's connections without closing them.

        If the child used or closed one, it would disturb the parent's session. So they stay open and unused until the
        child exits.
        """
        for raw in self._all:
            raw.forget()
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(raw))
        self._begin()
        self._sa_engine.dispose(close=False)

    # -- private -----------------------------------------------------------------------------------------------------

    def _discard_all(self, idle: deque[RawConnection]) -> None:
        while True:
            try:
                raw = idle.pop()
            except IndexError:  # no look before it: another thread may take the last one in between
                return
            self.discard(raw)

    def _opened(self) -> RawConnection:
        try:
            return self._made()
        except Exception as error:
            original = error.orig if isinstance(error, sa.exc.DBAPIError) else error
            refusal = self._engine.translate(original) if isinstance(original, Exception) else None
            if refusal is None:
                raise
            if isinstance(refusal, (ConnectionLost, DatabaseError)):
                url = shown(self._sa_engine.url)
                words = " ".join(str(original).split()).rstrip(".?")
                refusal = Unreachable(
                    f"The database {url} cannot be reached: {words}.",
                    "Check that the server runs, and the host, port, user, password and options of the URL.",
                )
            raise refusal from error

    def _made(self) -> RawConnection:
        self._engine.check_url(self._sa_engine.url)
        # An empty pool, with the options and the events that the caller's has now. It takes some 150 µs.
        with self._engine.connecting():
            proxy = self._sa_engine.pool.recreate().connect()
        try:
            raw = self._engine.adopt(proxy.dbapi_connection)
            raw.watch(self._watch)
        except BaseException:
            proxy.invalidate()
            raise
        proxy.detach()
        self._all.append(raw)
        return raw


class _Closing(deque[RawConnection]):
    """Replaces the idle connections before a fork: it is empty, and closes each connection that is returned to it."""

    def __init__(self, discard: Callable[[RawConnection], None]) -> None:
        super().__init__()
        self._discard = discard

    def append(self, raw: RawConnection) -> None:
        self._discard(raw)


def shown(url: sa.URL) -> str:
    """Return the URL for display, without its passwords. SQLAlchemy hides only the one before the @."""
    hidden = {name: "***" for name in url.query if is_secret(name)}
    return url.update_query_dict(hidden).render_as_string(hide_password=True)
