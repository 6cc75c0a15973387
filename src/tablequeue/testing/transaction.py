"""Queues in the transaction of a test, which is rolled back at its end."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from tablequeue.aio.database import own_url
from tablequeue.database import Database
from tablequeue.engines import check_kind, engine_class
from tablequeue.engines.bound import BoundRunner
from tablequeue.engines.table import Table
from tablequeue.errors import BadInput
from tablequeue.model.connection import own_session

if TYPE_CHECKING:
    from sqlalchemy import orm


def in_transaction(
    connection: sa.Connection | orm.Session | orm.scoped_session[Any], schema: str | None = None
) -> Database:
    """Return the queues of the database that a connection or session is to, as its open transaction sees them.

    Each verb without `connection=` runs in that transaction: also a push by a program that commits at once elsewhere,
    pops, `assert_pushed`, `perform` and `drain`. So all of them see what the application pushed there, and a rollback
    undoes all of it. Nothing is committed. Use it in the thread of the test alone.

    schema   as in `tablequeue.connect`.

    Call it before the application uses the connection: on SQLite it begins the transaction, which the driver would
    begin so late that a savepoint is committed.

    `BadInput` for an async connection: call it with the connection that its `run_sync` gives. The database that is
    returned refuses to make queues on MariaDB and MySQL, where that would commit the transaction: there `perform` with
    a queue is refused.
    """
    given = own_session(connection)
    own = given if isinstance(given, sa.Connection) else _connection_of(given)
    check_kind(own.dialect.name)
    if not own.in_transaction():
        own.begin()
    if getattr(own.connection.driver_connection, "in_transaction", True) is False:
        # The driver of SQLite begins one only before a change. A savepoint before that would be a transaction itself,
        # and its release a commit.
        own.connection.cursor().execute("begin")
    # The statements are for the synchronous driver: a cursor of an async driver translates them.
    dialect = sa.create_engine(own_url(own.engine.url)).dialect if own.dialect.is_async else own.dialect
    engine = engine_class(own.dialect.name)(dialect, schema)
    return Database(own.engine, TransactionRunner(own.engine, engine, given), None)


class TransactionRunner(BoundRunner):
    """Runs each operation in the transaction of one connection. There are no other connections."""

    def __init__(self, sa_engine: sa.Engine, engine: Any, connection: Any) -> None:
        super().__init__(sa_engine, engine)
        self._connection = connection

    def _given(self, connection: Any, creating: bool) -> AbstractContextManager[Any]:
        if creating and self.engine.commits_ddl:
            raise BadInput(
                f"{self.engine.name} would commit the transaction of the test when a queue is made in it.",
                "Make queues before the transaction begins, and perform without queue=.",
            )
        return nullcontext(self._connection if connection is None else connection)

    def _notify_apart(self, table: Table, connection: Any) -> None:
        table.notifies_apart = False


# -- private -----------------------------------------------------------------------------------------------------------


def _connection_of(session: Any) -> sa.Connection:
    """Return the connection that a session is bound to, before the session makes a savepoint on it; else its own."""
    if not hasattr(session, "get_bind") or hasattr(session, "run_sync"):
        raise BadInput(
            f"in_transaction was given {type(session).__name__}.",
            "Give a SQLAlchemy Connection or Session; of an async one, the one that its run_sync gives.",
        )
    bound = session.get_bind()
    return bound if isinstance(bound, sa.Connection) else session.connection()
