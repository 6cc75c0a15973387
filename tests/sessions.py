"""Connections of applications that call stored procedures of a queue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from tablequeue import Database, Queue
from tablequeue.engines.engine import Engine
from tests.procedures import CALLS


def engine_of(database: Database) -> Engine:
    return database._runner.engine


def made(database: Database, **options: Any) -> Queue:
    """The queue "work", with its procedures."""
    queue = database.create_queue("work", **options)
    database.install_procedures("work")
    return queue


class Session:
    """A connection that calls the procedures of a queue. Errors are translated to those of tablequeue."""

    def __init__(self, database: Database, connection: sa.Connection, queue: str = "work") -> None:
        self.engine = engine_of(database)
        self.connection = connection
        self.cursor = self.engine.join(connection.connection.dbapi_connection)
        self.table = self.engine.table(queue, database.queue(queue).definition)
        self.queue = self.engine.words(self.table)["queue"]

    def call(self, verb: str, **params: Any) -> list[Any]:
        """Return the rows of a procedure."""
        if "ids" in params:
            params["ids"] = self.engine.dump_ids(params["ids"])
        return self._translated(lambda: CALLS[self.engine.dialect.name](self.cursor, self.table, verb, params))

    def execute(self, statement: str) -> None:
        """Run a statement, in which `{queue}` is the queue's table."""
        self._translated(lambda: self.cursor.execute(statement.format(queue=self.queue)))

    def _translated(self, action: Any) -> Any:
        try:
            return action()
        except Exception as error:
            refusal = self.engine.translate(error)
            if refusal is None:
                raise
            raise refusal from error


@contextmanager
def session(database: Database, queue: str = "work") -> Iterator[Session]:
    """A session in autocommit: each call is a transaction."""
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        yield Session(database, connection, queue)


@contextmanager
def transaction(database: Database, queue: str = "work") -> Iterator[Session]:
    """A session whose calls are in one transaction, which commits at the end of the block; see `Session.connection`."""
    with database.engine.begin() as connection:
        yield Session(database, connection, queue)


def call(database: Database, verb: str, **params: Any) -> list[Any]:
    with session(database) as one:
        return one.call(verb, **params)
