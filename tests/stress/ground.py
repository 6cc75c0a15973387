"""The place of a round: a SQLite file, or a schema on a private server that can be killed."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from tests.servers import KINDS, Kind, Server


@dataclass(frozen=True)
class Ground:
    kind: Kind
    url: str | None
    """The URL of the server; None for SQLite, which has a file for each round."""
    server: Server | None
    """The private server, which can be killed."""

    def place(self, folder: Path) -> tuple[str, str | None]:
        """Yield the URL and the schema of a round."""
        if self.url is None:
            return f"sqlite:///{folder / 'queues.db'}", None
        return self.url, f"stress_{secrets.token_hex(6)}"

    def damages(self, url: str, schema: str | None) -> list[str]:
        """Return the faults that the database finds in its own files."""
        engine = sa.create_engine(url)
        try:
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                return list(DAMAGES[self.kind.name](connection, schema))
        finally:
            engine.dispose()

    def close_idle(self, url: str, chance: random.Random) -> None:
        """Let the server close some of the connections that are idle, and not in a transaction."""
        engine = sa.create_engine(url)
        try:
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                for number in connection.exec_driver_sql(IDLE[self.kind.name]).scalars().all():
                    if chance.random() < 0.3:
                        connection.exec_driver_sql(CLOSE[self.kind.name].format(number))
        except sa.exc.DBAPIError:  # it has ended by itself, or the server is down
            pass
        finally:
            engine.dispose()

    def clean(self, url: str, schema: str | None) -> None:
        if schema and self.kind.drop_schema:
            engine = sa.create_engine(url)
            with engine.begin() as connection:
                connection.exec_driver_sql(self.kind.drop_schema.format(schema))
            engine.dispose()


IDLE = {
    "postgresql": "select pid from pg_stat_activity where state = 'idle' and pid <> pg_backend_pid()",
    "mariadb": "select id from information_schema.processlist where command = 'Sleep' and id <> connection_id() "
    "and id not in (select trx_mysql_thread_id from information_schema.innodb_trx)",
}
CLOSE = {"postgresql": "select pg_terminate_backend({})", "mariadb": "kill {}"}


@contextmanager
def ground(engine: str, url: str | None = None) -> Iterator[Ground]:
    """Yield the ground of an engine, on the server of the URL or a private one. LookupError if it is not installed."""
    kind = next(kind for kind in KINDS if kind.name == engine)
    if kind.server is None or url:
        yield Ground(kind, url, None)
        return
    server = kind.server()
    if server is None:
        raise LookupError(f"no server of {engine} is installed")
    with server as running:
        sa.create_engine(running.url)  # its driver is imported once, and not by every client
        yield Ground(kind, running.url, running)


def _sqlite(connection: sa.Connection, schema: str | None) -> Iterator[str]:
    rows = connection.exec_driver_sql("pragma integrity_check").scalars().all()
    yield from (row for row in rows if row != "ok")


def _postgresql(connection: sa.Connection, schema: str | None) -> Iterator[str]:
    available = "select count(*) from pg_available_extensions where name = 'amcheck'"
    if not connection.exec_driver_sql(available).scalar_one():
        return
    connection.exec_driver_sql("create extension if not exists amcheck with schema public")
    tables = f"select c.oid::regclass::text from pg_class c where relnamespace = '{schema}'::regnamespace"  # noqa: S608
    for table in connection.exec_driver_sql(f"{tables} and relkind = 'r'").scalars().all():
        found = connection.exec_driver_sql(f"select msg from public.verify_heapam('{table}')")  # noqa: S608
        yield from (f"{table}: {message}" for message in found.scalars().all())
    for index in connection.exec_driver_sql(f"{tables} and relkind = 'i' and relam = 403").scalars().all():
        try:
            connection.exec_driver_sql(f"select public.bt_index_parent_check('{index}', true)")
        except sa.exc.DBAPIError as error:
            yield f"{index}: {error.orig}"


def _mariadb(connection: sa.Connection, schema: str | None) -> Iterator[str]:
    names = f"select table_name from information_schema.tables where table_schema = '{schema}'"  # noqa: S608
    for table in connection.exec_driver_sql(f"{names} and table_type = 'BASE TABLE'").scalars().all():
        for row in connection.exec_driver_sql(f"check table {schema}.{table} extended"):
            if row[3] != "OK":
                yield f"{table}: {row[2]} {row[3]}"


DAMAGES: dict[str, Callable[[sa.Connection, str | None], Iterator[str]]] = {
    "sqlite": _sqlite,
    "postgresql": _postgresql,
    "mariadb": _mariadb,
}
