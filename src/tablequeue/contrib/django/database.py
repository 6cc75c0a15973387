"""A database of Django's settings as a `Database`: on Django's own connection, or by a URL for the worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import sqlalchemy as sa
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction

from tablequeue.database import Database
from tablequeue.engines import engine_class
from tablequeue.engines.bound import BoundRunner
from tablequeue.engines.table import Table
from tablequeue.errors import ConnectionLost, QueueNotFound
from tablequeue.queue import Queue

# The databases of Django that tablequeue supports, with SQLAlchemy's names of their drivers.
DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
# The parameters of Django's connections that are no options of a URL.
NOT_IN_QUERY = {
    "postgresql": {"dbname", "user", "password", "host", "port", "prepare_threshold"},
    "mysql": {
        "db",
        "database",
        "user",
        "passwd",
        "password",
        "host",
        "port",
        "use_unicode",
        "client_flag",
        "init_command",
    },
}


class DjangoRunner(BoundRunner):
    """Runs each operation on Django's connection of the thread, in the transaction that is open on it.

    If that transaction can only be rolled back, it raises TransactionManagementError, as a query of Django does. If
    none is open, the operation has its own transaction. There are no other connections: so an enqueue is a part of the
    request's transaction, and tests roll back what they enqueue. Waiting consumers are notified after the commit.
    """

    def __init__(self, alias: str, sa_engine: sa.Engine) -> None:
        super().__init__(sa_engine, engine_class(sa_engine.dialect.name)(sa_engine.dialect, None))
        self.alias = alias

    @contextmanager
    def _given(self, connection: Any, creating: bool) -> Iterator[Any]:
        django = connections[self.alias]
        django.validate_no_broken_transaction()
        try:
            with transaction.atomic(using=self.alias, savepoint=False):
                yield django.connection
        except ConnectionLost:
            django.errors_occurred = True  # so that Django checks whether it must connect again
            raise
        except QueueNotFound:
            queue.cache_clear()  # it may have been dropped: the next call opens the queue that has its name now
            raise

    def _notify_apart(self, table: Table, connection: Any) -> None:
        table.notifies_apart = False
        transaction.on_commit(partial(self._notify, table), using=self.alias, robust=True)

    def _notify(self, table: Table) -> None:
        self.engine.messages.notify(self.engine.join(connections[self.alias].connection), table, {"within": False})


@cache
def database(alias: str) -> Database:
    """Return the queues of that database of Django's settings, on Django's connections."""
    sa_engine = sa.create_engine(f"{_driver(alias)}://")
    return Database(sa_engine, DjangoRunner(alias, sa_engine), None)


@cache
def queue(alias: str, name: str) -> Queue:
    """Return a queue of that database. Once in a process: under ASGI, Django makes a backend for each request."""
    return database(alias).queue(name)


def url_of(alias: str) -> sa.URL:
    """Return the URL of that database, for connections of tablequeue's own, with the OPTIONS that a URL can have."""
    connection, driver = connections[alias], _driver(alias)
    settings = connection.settings_dict
    name, host, port = (str(settings[key]) if settings[key] else None for key in ("NAME", "HOST", "PORT"))
    if connection.vendor == "sqlite":
        if connection.is_in_memory_db():
            raise ImproperlyConfigured(
                f"The database {alias!r} is in memory, where no other connection sees it. Give it a file as its NAME."
            )
        query = {"uri": "true"} if str(name).startswith("file:") else {}
        return sa.URL.create(driver, database=name, query=query)
    params = connection.get_connection_params()
    ssl = params.get("ssl")
    if isinstance(ssl, dict):
        params |= {f"ssl_{part}": value for part, value in ssl.items()}
    if params.get("unix_socket"):  # Django's MySQL takes the path of a socket for a host
        host = None
    kept = params.keys() - NOT_IN_QUERY[connection.vendor]
    return sa.URL.create(
        driver,
        username=settings["USER"] or None,
        password=settings["PASSWORD"] or None,
        host=host,
        port=int(port) if port else None,
        database=name,
        query={key: str(params[key]) for key in sorted(kept) if type(params[key]) in (str, int, float)},
    )


def _driver(alias: str) -> str:
    vendor = connections[alias].vendor
    if vendor not in DRIVERS:
        raise ImproperlyConfigured(f"tablequeue has no engine for {vendor}. Use one of: {', '.join(DRIVERS)}.")
    return DRIVERS[vendor]
