"""The database of a migration: on Alembic's connection if DDL is a part of a transaction, else on one of our own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import sqlalchemy as sa
from alembic.runtime.migration import MigrationContext

from tablequeue.aio.database import own_url
from tablequeue.database import Database, connect
from tablequeue.engines import check_kind, engine_class
from tablequeue.engines.bound import BoundRunner
from tablequeue.engines.engine import Engine
from tablequeue.errors import BadInput, BadUrl


class MigrationRunner(BoundRunner):
    """Runs each operation on the connection of a migration, in its transaction, which it never commits."""

    def __init__(self, connection: sa.Connection, engine: Engine) -> None:
        super().__init__(connection.engine, engine)
        self._connection = connection

    def _given(self, connection: Any, creating: bool) -> AbstractContextManager[Any]:
        return nullcontext(self._connection)


@contextmanager
def opened(context: MigrationContext, schema: str | None) -> Iterator[Database]:
    """Return the `Database` that is migrated.

    On MariaDB and MySQL each DDL statement commits, so Alembic's connection has no advantage, and the creators' lock
    would stay on it.
    """
    connection = context.connection
    assert connection is not None, "online"
    engine = engine_of(context, schema)
    sa_engine = connection.engine
    if engine.commits_ddl:
        database = connect(own_url(sa_engine.url) if connection.dialect.is_async else sa_engine, schema=schema)
    else:
        database = Database(sa_engine, MigrationRunner(connection, engine), None)
    with database:
        yield database


def end_transaction(context: MigrationContext, schema: str | None) -> None:
    """Commit the migration so far, on databases where each DDL statement commits, also the statements of Alembic.

    Else the operation, on its connection, would wait for the rows and tables that the migration has locked.
    """
    if engine_of(context, schema).commits_ddl and context.connection is not None:
        context.connection.connection.commit()


def engine_of(context: MigrationContext, schema: str | None) -> Engine:
    """Return the engine for the dialect of a migration, online or with --sql."""
    dialect = context.dialect
    check_kind(dialect.name)
    engine_type = engine_class(dialect.name)
    if schema is not None and not engine_type.has_schemas:
        raise BadInput(f"{dialect.name} has no schemas.", "Leave schema out.")
    if not context.as_sql and dialect.driver not in {*engine_type.drivers, *engine_type.async_drivers}:
        raise BadUrl(
            f"tablequeue does not speak {dialect.name} through the driver {dialect.driver}.",
            f"Write {dialect.name}+{engine_type.drivers[0]}:// in the URL.",
        )
    return engine_type(dialect, schema)
