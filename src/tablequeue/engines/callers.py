"""The caller's connections, in which an operation is a part of the caller's transaction."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from inspect import iscoroutinefunction
from typing import Any

import sqlalchemy as sa

from tablequeue.engines.connection import Cursor
from tablequeue.engines.engine import Engine
from tablequeue.errors import BadInput
from tablequeue.model.connection import Connection, own_session


def unusable(error: Exception) -> BadInput | None:
    """Return the refusal of a connection or session that SQLAlchemy does not use; None for another error."""
    if isinstance(error, sa.exc.MissingGreenlet):
        return BadInput(
            "The connection is an async one, used outside of its run_sync.", "Use the verbs of tablequeue.aio."
        )
    if isinstance(error, sa.exc.InvalidRequestError):
        return BadInput(
            f"The connection= of the call cannot be used: {str(error.args[0]).strip().rstrip('.')}.",
            "Pass a connection or session that is open and bound to the database; roll it back after an error.",
        )
    return None


def joined(engine: Engine, connection: Connection) -> Cursor:
    """Return a cursor in the transaction of a caller's connection, in any form that `connection=` takes."""
    connection = _connection_of(connection)
    if isinstance(connection, sa.Connection):
        if connection.dialect.name != engine.dialect.name:
            raise BadInput(
                f"The connection is to {connection.dialect.name}, the queue is on {engine.dialect.name}.",
                "Pass a connection to the database of the queue.",
            )
        if not connection.in_transaction():
            # As its own execute() does: without a transaction that SQLAlchemy knows of, its commit() does nothing.
            connection.begin()
        raw: Any = connection.connection.dbapi_connection
        if not connection.dialect.is_async:
            return _joined_raw(engine, raw)
        if connection.dialect.driver in engine.async_drivers:
            _refuse_autocommit(engine.commits_each(raw))
            return engine.join_async(raw)
        raise BadInput(
            f"tablequeue does not support the async driver {connection.dialect.driver}.",
            f"Use {' or '.join(engine.async_drivers) or 'a synchronous connection and tablequeue.Queue'}.",
        )
    # Methods that an async driver has as coroutines. Not only one: asyncpg has no commit, aiomysql a plain close.
    methods = (getattr(connection, name, None) for name in ("close", "commit"))
    if hasattr(connection, "run_sync") or any(map(iscoroutinefunction, methods)):
        raise BadInput(
            f"connection is a {type(connection).__name__}, an async one.",
            "Use the verbs of tablequeue.aio, with a SQLAlchemy AsyncConnection or AsyncSession.",
        )
    if hasattr(connection, "cursor"):
        return _joined_raw(engine, connection)
    raise BadInput(
        f"connection is a {type(connection).__name__}.",
        "Pass a SQLAlchemy Connection or Session, or a DB-API connection.",
    )


def _joined_raw(engine: Engine, dbapi: Any) -> Cursor:
    _refuse_autocommit(engine.commits_each(dbapi))
    return engine.join(dbapi)


def _connection_of(connection: Connection | None) -> Any:
    """Return the connection of a Session, or of the current one of a registry; return anything else unchanged."""
    # A caller with a Session has imported sqlalchemy.orm. An import here would be a third of `import tablequeue`.
    # Another thread may be importing it: then it has no Session yet, and nobody has one.
    connection = own_session(connection)
    session = getattr(sys.modules.get("sqlalchemy.orm"), "Session", None)
    return connection.connection() if session is not None and isinstance(connection, session) else connection


@contextmanager
def whole(engine: Engine, cursor: Cursor, unless: type[Exception] | tuple[()] = (), level: str = "") -> Iterator[None]:
    """Undo what the block has done in a caller's transaction, if it raises: the caller may go on, and commit.

    unless   an error that tells what was done: then that stays.
    level    the rest of the name of the savepoint, for a block that has others inside.
    """
    name = f"tablequeue_call{level}"
    cursor.execute(f"savepoint {name}")
    try:
        yield
    except unless:
        raise
    except Exception:
        with suppress(Exception):  # the connection is gone, or the server has rolled back the whole transaction
            cursor.execute(f"rollback to savepoint {name}")
        raise
    if engine.savepoints_stay:
        cursor.execute(f"release savepoint {name}")


def adapted(connection: Connection | None) -> Any:
    """Return SQLAlchemy's adapted connection if the caller's connection has an async driver; else None."""
    try:
        connection = _connection_of(connection)
        if isinstance(connection, sa.Connection) and connection.dialect.is_async:
            return connection.connection.dbapi_connection
    except sa.exc.InvalidRequestError as error:
        raise unusable(error) or error from error
    return None


def _refuse_autocommit(commits_each: bool) -> None:
    if commits_each:
        raise BadInput(
            "The connection is in autocommit, and no transaction is open on it.",
            "Begin a transaction, or leave connection= out.",
        )
