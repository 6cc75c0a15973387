"""The runner of operations on raw connections, our own or the caller's. This is the hot path of the library.

Measured on SQLite: 5,000 pushes a second through `Engine.begin()` and `text`, 14,000 on a raw connection. So
SQLAlchemy makes and configures the connections, and the statements run on cursors of the driver.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from random import random
from threading import Lock
from time import sleep
from typing import Any, NoReturn, TypeVar

import sqlalchemy as sa

from tablequeue.engines import clock
from tablequeue.engines.callers import adapted, joined, unusable, whole
from tablequeue.engines.connection import Cursor, RawConnection
from tablequeue.engines.engine import Engine
from tablequeue.engines.notifier import Notifier
from tablequeue.engines.operation import Operation, declaration
from tablequeue.engines.params import Params
from tablequeue.engines.pool import Pool
from tablequeue.engines.table import Statements, Table
from tablequeue.errors import ConnectionLost, ReadOnly, TablequeueError
from tablequeue.model.connection import Connection

T = TypeVar("T")
TableT = TypeVar("TableT", bound=Statements)
Beside = Callable[..., AbstractContextManager[Any]]
"""Runs an operation beside the caller's transaction, for the time of a block; see `Runner.held_beside`."""

# Maximum number of retries of our own transaction after the database rolled it back for a concurrent one.
RETRIES = 10
# Maximum seconds before the first retry.
RETRY_PAUSE = 0.001

_runners: weakref.WeakSet[Runner] = weakref.WeakSet()


class Runner:
    """Runs operations, each on a connection of our own or on the caller's."""

    def __init__(self, sa_engine: sa.Engine, engine: Engine) -> None:
        self.sa_engine = sa_engine
        self.engine = engine
        engine.opened(sa_engine)
        self.pool = Pool(sa_engine, engine)
        self.notifier = self._new_notifier()
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
        # `declaration`, without a call. A function of several operations has none, and needs a transaction.
        declared: Operation | None = getattr(operation, "declared", None)
        autocommit = declared is not None and declared.effect in self.engine.autocommit
        raw, result = self._retried(operation, table, params, autocommit, creating=creating)
        self.pool.keep(raw)
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

    def whole(
        self, connection: Connection | None, *, refuses: bool = False, unless: type[Exception] | tuple[()] = ()
    ) -> AbstractContextManager[None]:
        """Undo what several operations of a call have done in the caller's transaction, if the call is refused.

        refuses   whether we refuse, and not only the database: an error of PostgreSQL undoes all by itself.
        unless    an error that tells what was done: then that stays.
        """
        if connection is None or (self.engine.errors_abort and not refuses):
            return nullcontext()
        return self._undone(connection, unless)

    def missing(self) -> str | None:
        """Return the path of a missing database file that the first connection would create; else None."""
        return self.engine.missing()

    def close(self) -> None:
        self._close_notifier()
        self.pool.close_idle()

    def close_before_fork(self) -> None:
        self.pool.close_before_fork(self._close_notifier)

    def open_after_fork(self) -> None:
        self.pool.open_after_fork()

    def forget_parent(self) -> None:
        self.pool.forget_parent()
        self.notifier = self._new_notifier()  # the thread of the old one is the parent's

    # -- private -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _undone(self, connection: Connection, unless: type[Exception] | tuple[()]) -> Iterator[None]:
        try:
            with whole(self.engine, joined(self.engine, connection), unless, "_of_several"):
                yield
        except Exception as error:
            self._refuse(error)

    def _new_notifier(self) -> Notifier | None:
        listener = self.engine.listener
        return None if listener is None else Notifier(listener, self.pool.connect_at_once, self.pool.discard)

    def _close_notifier(self) -> None:
        if self.notifier is not None:
            self.notifier.close()

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
            raw = self.pool.open(creating=creating)
            try:
                if autocommit or not ends:
                    return raw, operation(raw.cursor, table, params)
                return raw, raw.transact(partial(operation, raw.cursor, table, params))
            except BaseException as error:
                refusal = self._recover(raw, error, autocommit)
                if refusal is None:
                    raise
                declared = declaration(operation)
                repeatable = not ends or (declared is not None and declared.repeatable)
                lost = isinstance(refusal, ConnectionLost) and repeatable
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
            self.pool.discard(raw)
            return refusal
        if isinstance(refusal, (ConnectionLost, ReadOnly)):
            # What broke this connection has most likely broken the idle ones too. One that has become read-only is to
            # a server that another one has replaced, and stays so; those of SQLAlchemy's pool are to the same.
            self.pool.discard(raw)
            self.pool.close_idle()
            if isinstance(refusal, ReadOnly):
                self.pool.close_of_caller()
        else:
            self.pool.keep(raw)
        return refusal

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
            self.pool.discard(raw)  # with its connection, its locks are gone
        else:
            self.pool.keep(raw)

    def _is_whole(self, operation: Callable[..., Any]) -> bool:
        """Whether an operation in a caller's transaction needs no savepoint, because it is one statement.

        A function of several operations may be refused after the first one.
        """
        declared, saves = declaration(operation), self.engine.saves
        return declared is not None and (saves == "none" or (saves == "several" and not declared.several))

    def _notify_apart(self, table: Table, connection: Connection) -> None:
        table.notifies_apart = False  # first: another thread may set it again from now on
        try:
            self.run_beside(self.engine.messages.notify, table, {}, connection)
        except TablequeueError:
            # The push has succeeded. The consumers find the message by polling.
            return


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
