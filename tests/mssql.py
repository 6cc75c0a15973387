"""SQL Server for the tests: the server in TABLEQUEUE_TEST_MSSQL_URL, with any of the three drivers.

Each run has a database of its own there, with READ_COMMITTED_SNAPSHOT on unless TABLEQUEUE_TEST_MSSQL_RCSI=off.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

URL = os.environ.get("TABLEQUEUE_TEST_MSSQL_URL")
# Connections of one test at most: a server with little memory refuses more. Each process of pytest runs one test at a
# time; `make test ENGINE=mssql` has two.
CONNECTIONS = 100
RCSI = "off" if os.environ.get("TABLEQUEUE_TEST_MSSQL_RCSI", "").lower() == "off" else "on"


def kinds(kind: Callable[..., Any]) -> Iterator[Any]:
    """Return the entry of KINDS if there is a server."""
    if URL:
        yield kind(
            "mssql",
            lambda request: request.getfixturevalue("mssql_url"),
            crowd=16,
            producers_and_consumers=(4, CONNECTIONS // 4),
            side_by_side=True,
            explain=None,  # SHOWPLAN is a session setting, and does not show prepared batches
            sorts="sort",
            analyze="update statistics ",
            dict_rows=None,
            drop_schema=None,
            number=_number,
            blocked=_blocked,
        )


@lru_cache(1000)
def _number(dbapi: Any) -> int:
    """Ask a connection for the number of its session, the first time: one that waits could not answer."""
    with closing(dbapi.cursor()) as cursor:
        cursor.execute("select @@spid")
        number: int = cursor.fetchone()[0]
    dbapi.rollback()
    return number


def _blocked(watch: sa.Connection) -> set[int]:
    rows = watch.exec_driver_sql(
        "select session_id from sys.dm_exec_requests where blocking_session_id <> 0 and database_id = db_id()"
    )
    return set(rows.scalars())


@contextmanager
def database() -> Iterator[str]:
    """Create a database, yield its URL, and drop it, even if connections are open."""
    assert URL is not None
    server = sa.create_engine(URL, isolation_level="AUTOCOMMIT")
    name = f"tablequeue_{secrets.token_hex(8)}"
    with server.connect() as connection:
        connection.exec_driver_sql(f"create database {name}")
        connection.exec_driver_sql(f"alter database {name} set read_committed_snapshot {RCSI}")
    try:
        yield server.url.set(database=name).render_as_string(hide_password=False)
    finally:
        with server.connect() as connection:
            connection.exec_driver_sql(f"alter database {name} set single_user with rollback immediate")
            connection.exec_driver_sql(f"drop database {name}")
        server.dispose()
