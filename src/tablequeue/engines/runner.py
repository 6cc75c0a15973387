"""The runner of operations on raw connections, our own or the caller's. This is the hot path of the library.

Measured on SQLite: 5,000 pushes a second through `Engine.begin()` and `text`, 14,000 on a raw connection. So
SQLAlchemy makes and configures the connections, and the statements run on cursors of the driver.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from math import inf
from random import random
from threading import Condition, Lock
from time import monotonic, sleep
from typing import Any, NoReturn, TypeVar

import sqlalchemy as sa

from tablequeue.engines import clock
from tablequeue.engines.callers import adapted, joined, unusable, whole
from tablequeue.engines.connection import Cursor, RawConnection
from tablequeue.engines.engine import Engine
from tablequeue.engines.notifier import Notifier
from tablequeue.engines.operations import OPERATIONS
from tablequeue.engines.params import Params
from tablequeue.engines.parts import Part
from tablequeue.engines.silence import Watch
from tablequeue.engines.table import Statements, Table
from tablequeue.errors import (
    ConnectionLost,
    DatabaseError,
    Locked,
    QueueNotFound,
    ReadOnly,
    TablequeueError,
    Unreachable,
)
from tablequeue.model.connection import Connection
from tablequeue.model.redaction import is_secret

T = TypeVar("T")
TableT = TypeVar("TableT", bound=Statements)
Beside = Callable[..., AbstractContextManager[Any]]
"""Runs an operation beside the caller's transaction, for the time of a block; see `Runner.held_beside`."""

# Maximum number of retries of our own transaction after the database rolled it back for a concurrent one.
RETRIES = 10
# Maximum seconds before the first retry.
RETRY_PAUSE = 0.001
# The remedy if a database file is missing that a connection would create.
FILE_REMEDY = "Correct the path in the URL; or make a queue, and the file with it, by create_queue() or `queue create`."

# Seconds that a fork waits for calls in other threads, on an engine that must have no connection open then.
FORK_PATIENCE = 2.0

_runners: weakref.WeakSet[Runner] = weakref.WeakSet()


class Runner:
    """A pool of raw connections of our own. Each concurrent call uses one, which is kept for later calls.

    They are made as those of the caller's pool are, with its events, but apart from it: their settings are changed for
    good, and no call of ours waits until the caller's own code gives a connection of that pool back.
    """

    def __init__(self, sa_engine: sa.Engine, engine: Engine) -> None:
        self.sa_engine = sa_engine
        self.engine = engine
        engine.opened(sa_engine)
        self.notifier = self._new_notifier()
        self._idle: deque[RawConnection] = deque()
        self._all: list[RawConnection] = []
        self._gate = Condition()
        self._forking = False
        self._opening = 0
        self._watch = Watch(self._connect_and_close)
        recycle: int = sa_engine.pool._recycle  # noqa: SLF001  (SQLAlchemy has no public way to the option pool_recycle)
        self._longest = recycle if recycle > -1 else inf
        _runners.add(self)

    def run(
        self,
        operation: Callable[[Cursor, TableT, Params], T],
        table: TableT,
        params: Params,
        connection: Connection | None = None,
        *,
        creating: bool = False,
    ) -> T:
        """Run one operation: in the caller's transaction if a `connection` is given, else in one of its own.

        A missing database file is created only by a call that is `creating`. Any other call raises `QueueNotFound`.

        If the connection breaks in the call, or turns out to be read-only, the operation runs once more on a new one,
        unless it may have taken effect and would take effect twice: then `ConnectionLost`. See `Operation.repeatable`.
        """
        if connection is not None:
            return self._run_within(connection, operation, table, params)
        # Only an engine's own method: a function of several operations needs a transaction, whatever its name.
        autocommit = hasattr(operation, "__self__") and operation.__name__ in self.engine.autocommit
        raw, result = self._retried(operation, table, params, autocommit, creating=creating)
        self._keep(raw)
        return result

    def run_beside(
        self,
        operation: Callable[[Cursor, TableT, Params], T],
        table: TableT,
        params: Params,
        connection: Connection | None,
    ) -> T:
        """Run one operation in a transaction of its own, for a call in the transaction of the caller's `connection`.

        If that connection is async, the call is on the event loop. Then the operation runs in a thread, so that it
        does not block the loop.
        """
        raw = adapted(connection)
        if raw is None:
            return self.run(operation, table, params)
        return raw.run_async(lambda _: asyncio.to_thread(self.run, operation, table, params))

    @contextmanager
    def held_beside(
        self,
        connection: Connection | None,
        operation: Callable[[Cursor, TableT, Params], T],
        table: TableT,
        params: Params,
    ) -> Iterator[T]:
        """Run an operation beside the caller's transaction, and keep what it has locked until the end of the block.

        Then what it has begun is rolled back. In a thread for an async connection, as `run_beside`: if the task is
        cancelled, the thread goes on, and lets go by itself what nobody waits for any more.
        """
        raw = adapted(connection)
        if raw is None:
            own, result = self._hold(operation, table, params)
            try:
                yield result
            finally:
                self._let_go(own)
            return
        held: list[tuple[RawConnection, T]] = []
        gate = Lock()
        ended = False

        def hold() -> None:
            own, result = self._hold(operation, table, params)
            with gate:
                if not ended:
                    held.append((own, result))
                    return
            self._let_go(own)

        try:
            raw.run_async(lambda _: asyncio.to_thread(hold))
            yield held[0][1]
        finally:
            with gate:
                ended = True
            if held:
                raw.run_async(lambda _: asyncio.shield(asyncio.to_thread(self._let_go, held[0][0])))

    @contextmanager
    def whole(
        self, connection: Connection | None, *, refuses: bool = False, unless: type[Exception] | tuple[()] = ()
    ) -> Iterator[None]:
        """Undo what several operations of a call have done in the caller's transaction, if the call is refused.

        refuses   whether we refuse, and not only the database: an error of PostgreSQL undoes all by itself.
        unless    an error that tells what was done: then that stays.
        """
        if connection is None or (self.engine.errors_abort and not refuses):
            yield
            return
        try:
            with whole(self.engine, joined(self.engine, connection), unless, "_of_several"):
                yield
        except Exception as error:
            self._refuse(error)

    def missing(self) -> str | None:
        """Return the path of a missing database file that the first connection would create; else None."""
        return self.engine.missing()

    def close(self) -> None:
        if self.notifier is not None:
            self.notifier.close()
        self._close_idle()

    def close_before_fork(self) -> None:
        """Close all connections: idle ones now, others when their calls end.

        A call that needs another one waits for `open_after_fork`.
        """
        with self._gate:
            self._forking = True
        before, self._idle = self._idle, _Closing(self._discard)
        if self.notifier is not None:
            self.notifier.close()
        deadline = monotonic() + FORK_PATIENCE
        while (self._all or self._opening) and monotonic() < deadline:
            while before:
                self._discard(before.pop())
            sleep(0.001)
        self._close_pool()

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
        self._all.clear()
        self._idle = deque()
        self._gate = Condition()
        self._forking = False
        self._opening = 0
        self._watch = Watch(self._connect_and_close)
        self.notifier = self._new_notifier()  # the thread of the old one is the parent's
        self.sa_engine.dispose(close=False)

    # -- private -----------------------------------------------------------------------------------------------------

    def _new_notifier(self) -> Notifier | None:
        listener = self.engine.listener
        return None if listener is None else Notifier(listener, self._connect_at_once, self._discard)

    def _close_idle(self) -> None:
        while self._idle:
            self._discard(self._idle.pop())

    def _open_connection(self, creating: bool) -> RawConnection:
        """Return an idle connection that the server has not closed and that is not too old, or a new one."""
        while True:
            try:
                raw = self._idle.pop()
            except IndexError:
                return self._connect(creating)
            now = monotonic()
            if now - raw.opened_at <= self._longest and (now - raw.used_at < raw.look_after or raw.is_open()):
                return raw
            self._discard(raw)

    def _keep(self, raw: RawConnection) -> None:
        raw.used_at = monotonic()
        self._idle.append(raw)

    def _close_pool(self) -> None:
        # Pools of other classes would also close the connections that are checked out.
        if isinstance(self.sa_engine.pool, (sa.QueuePool, sa.NullPool)):
            self.sa_engine.dispose()

    def _connect_at_once(self) -> RawConnection:
        if self._forking:
            raise Locked("The process is being forked.", "Try again.")
        return self._connect()

    def _connect(self, creating: bool = False) -> RawConnection:
        if not creating and (path := self.missing()):
            raise QueueNotFound(f"There is no database file {path}, and so no queue.", FILE_REMEDY)
        with self._gate:
            self._gate.wait_for(lambda: not self._forking)
            self._opening += 1
        try:
            return self._opened()
        finally:
            with self._gate:
                self._opening -= 1

    def _opened(self) -> RawConnection:
        try:
            return self._made()
        except Exception as error:
            original = error.orig if isinstance(error, sa.exc.DBAPIError) else error
            refusal = self.engine.translate(original) if isinstance(original, Exception) else None
            if refusal is None:
                raise
            if isinstance(refusal, (ConnectionLost, DatabaseError)):
                url = shown(self.sa_engine.url)
                words = " ".join(str(original).split()).rstrip(".?")
                refusal = Unreachable(
                    f"The database {url} cannot be reached: {words}.",
                    "Check that the server runs, and the host, port, user, password and options of the URL.",
                )
            raise refusal from error

    def _made(self) -> RawConnection:
        self.engine.check_url(self.sa_engine.url)
        # An empty pool, with the options and the events that the caller's has now. It takes some 150 µs.
        with self.engine.connecting():
            proxy = self.sa_engine.pool.recreate().connect()
        try:
            raw = self.engine.adopt(proxy.dbapi_connection)
            raw.watch(self._watch)
        except BaseException:
            proxy.invalidate()
            raise
        proxy.detach()
        self._all.append(raw)
        return raw

    def _connect_and_close(self) -> None:
        self._discard(self._connect())

    def _retried(
        self,
        operation: Callable[[Cursor, TableT, Params], T],
        table: TableT,
        params: Params,
        autocommit: bool,
        *,
        creating: bool = False,
        ends: bool = True,
    ) -> tuple[RawConnection, T]:
        """Run an operation on a connection of ours until it succeeds, or fails for good. Return both.

        ends   whether the transaction ends with the operation; else nothing takes effect before its end.
        """
        if clock.ahead is not None:
            params = clock.moved(self.engine, params)
        renewed = False
        for retry in range(RETRIES + 1):
            raw = self._open_connection(creating)
            try:
                if autocommit or not ends:
                    return raw, operation(raw.cursor, table, params)
                return raw, raw.transact(partial(operation, raw.cursor, table, params))
            except BaseException as error:
                refusal = self._recover(raw, error, autocommit)
                if refusal is None:
                    raise
                lost = isinstance(refusal, ConnectionLost) and (not ends or _is_repeatable(operation))
                if not renewed and (lost or isinstance(refusal, ReadOnly)):
                    renewed = True
                elif retry < RETRIES and isinstance(error, Exception) and self.engine.is_transient(error):
                    # Random exponential back-off, so that the same transactions do not collide again.
                    sleep(random() * RETRY_PAUSE * 2**retry)
                else:
                    raise refusal from error
        raise AssertionError("unreachable: the last retry returns or raises")

    def _recover(self, raw: RawConnection, error: BaseException, autocommit: bool) -> TablequeueError | None:
        """Roll back. Return our error for the driver's one; None if it is not an error of the driver."""
        refusal = self.engine.translate(error) if isinstance(error, Exception) else None
        try:
            # An interrupt may have come in the middle of a protocol exchange: this connection is not reused.
            if refusal is None and not isinstance(error, TablequeueError):
                raise ConnectionError
            if not autocommit:
                raw.rollback()
        except Exception:
            self._discard(raw)
            return refusal
        if isinstance(refusal, (ConnectionLost, ReadOnly)):
            # What broke this connection has most likely broken the idle ones too. One that has become read-only is to
            # a server that another one has replaced, and stays so; those of SQLAlchemy's pool are to the same.
            self._discard(raw)
            self._close_idle()
            if isinstance(refusal, ReadOnly):
                self._close_pool()
        else:
            self._keep(raw)
        return refusal

    def _discard(self, raw: RawConnection) -> None:
        try:
            raw.close()
        except Exception:
            # A connection that cannot be closed needs no more care. The error to report is the one before.
            pass
        self._all.remove(raw)  # last: a fork waits for it

    def _run_within(
        self, connection: Connection, operation: Callable[[Cursor, TableT, Params], T], table: TableT, params: Params
    ) -> T:
        try:
            cursor = joined(self.engine, connection)
            if self.engine.place is None:
                self.engine.settle_by(cursor)
            if self.engine.looks_apart:
                cursor.beside = self._beside(connection)
            if clock.ahead is not None:
                params = clock.moved(self.engine, params)
            with nullcontext() if self._is_whole(operation) else whole(self.engine, cursor):
                result = operation(cursor, table, params)
            if isinstance(table, Table) and table.notifies_apart:
                self._notify_apart(table, connection)
            return result
        except Exception as error:
            self._refuse(error)

    def _refuse(self, error: Exception) -> NoReturn:
        """Raise the refusal for an error in a caller's transaction; the error itself, if it is none of the database."""
        refusal = unusable(error) or self.engine.translate(error)
        if refusal is None:
            raise error
        raise refusal from error

    def _beside(self, connection: Connection) -> Beside | None:
        """Return what an operation in the caller's transaction runs others beside it with."""
        return partial(self.held_beside, connection)

    def _hold(
        self, operation: Callable[[Cursor, TableT, Params], T], table: TableT, params: Params
    ) -> tuple[RawConnection, T]:
        """Run an operation on a connection of ours, which stays with the caller and in the transaction."""
        return self._retried(operation, table, params, autocommit=False, ends=False)

    def _let_go(self, raw: RawConnection) -> None:
        try:
            if not self.engine.commits_each(raw.dbapi):
                raw.rollback()
        except Exception:
            self._discard(raw)  # with its connection, its locks are gone
        else:
            self._keep(raw)

    def _is_whole(self, operation: Callable[..., Any]) -> bool:
        """Whether an operation in a caller's transaction needs no savepoint, because it is one statement.

        A function of several operations may be refused after the first one.
        """
        undone = self.engine.undone
        is_one = isinstance(getattr(operation, "__self__", None), Part)
        return is_one and undone is not None and operation.__name__ not in undone

    def _notify_apart(self, table: Table, connection: Connection) -> None:
        table.notifies_apart = False  # first: another thread may set it again from now on
        try:
            self.run_beside(self.engine.messages.notify, table, {}, connection)
        except TablequeueError:
            # The push has succeeded. The consumers find the message by polling.
            return


def _is_repeatable(operation: Callable[..., Any]) -> bool:
    """Return whether the operation may run again after its connection broke: it is one of the table, not a function."""
    known = OPERATIONS.get(operation.__name__) if hasattr(operation, "__self__") else None
    return known is not None and known.repeatable


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


def _before_fork() -> None:
    for runner in list(_runners):
        if runner.engine.closes_before_fork:
            runner.close_before_fork()


def _after_fork() -> None:
    for runner in list(_runners):
        if runner.engine.closes_before_fork:
            runner.open_after_fork()


def _forget_parent() -> None:
    for runner in list(_runners):
        runner.forget_parent()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_forget_parent)
