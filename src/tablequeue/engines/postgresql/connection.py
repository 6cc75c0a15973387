"""Connections to PostgreSQL: our own, with the settings that the promises need, and cursors that return text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg.rows import tuple_row
from psycopg.types.array import ListBinaryDumper
from psycopg.types.string import TextLoader

from tablequeue import errors
from tablequeue.engines.connection import Cursor, RawConnection
from tablequeue.engines.postgresql.values import Column, Ids, IdsDumper

# The settings under which the server's times and texts can be read. The server reports when they change.
READABLE = {"DateStyle": "ISO, MDY", "client_encoding": "UTF8"}


class OwnCursor(psycopg.Cursor[tuple[Any, ...]]):
    """A cursor of a connection of our own: a statement outside of a transaction is committed at once."""

    ours = True


class PostgreSQLConnection(RawConnection):
    pooled = False
    """Whether each transaction may run in another session, as through PgBouncer: then LISTEN receives nothing."""


# What the server must not do for each call: compile a read of a topic's log, which takes longer than the read; plan a
# statement again, which takes longer than a claim, because it is cheaper by a little for the values of this call.
SETTINGS = "set_config('jit', 'off', false), set_config('plan_cache_mode', 'force_generic_plan', false)"


def adopt(dbapi: Any) -> PostgreSQLConnection:
    dbapi.autocommit = True  # a call is one statement: no BEGIN and COMMIT around it, one round trip
    dbapi.cursor_factory = OwnCursor
    connection = PostgreSQLConnection(dbapi, reading_text(dbapi.cursor(row_factory=tuple_row)))
    # Behind a pooler the session is not ours to change.
    connection.cursor.execute(
        "select current_setting('default_transaction_isolation'), pg_backend_pid(), "
        f"case when pg_backend_pid() = %(session)s then array[{SETTINGS}] end",
        {"session": dbapi.info.backend_pid},
    )
    isolation, session, _ = connection.cursor.fetchone()
    # A pooler between us and the server, such as PgBouncer, reports a session number of its own.
    connection.pooled = session != dbapi.info.backend_pid
    if connection.pooled:
        dbapi.prepare_threshold = None  # the next call may run in a session that has not prepared it
    elif dbapi.prepare_threshold:
        # Prepare each statement at its first run, not at its sixth. In a session of 10 cycles of push, pop and
        # complete, a cycle takes the server 1.3 ms instead of 1.65; a single statement takes one more round trip. None
        # means that the caller has turned preparation off.
        dbapi.prepare_threshold = 0
    if isolation != "read committed":
        # Under repeatable read a claim that meets another claim fails, instead of skipping its rows.
        if connection.pooled:
            raise errors.BadUrl(
                f"Transactions are {isolation} by default, and tablequeue cannot change that through a pooler.",
                "Set default_transaction_isolation of the role to 'read committed', or connect directly.",
            )
        connection.cursor.execute("set session characteristics as transaction isolation level read committed")
    for setting, found in _unreadable(dbapi):
        if connection.pooled:
            raise errors.BadUrl(
                f"The setting {setting} is {found}, and tablequeue cannot change that through a pooler.",
                f"Set {setting} of the role to {READABLE[setting]}, or connect directly.",
            )
        connection.cursor.execute(f"set {setting} to '{READABLE[setting]}'")
    return connection


def check_settings(dbapi: Any) -> None:
    """Refuse a caller's connection if its settings make the server send times or texts that we cannot read."""
    for setting, found in _unreadable(dbapi):
        raise errors.BadInput(
            f"The setting {setting} of the connection is {found}, and tablequeue cannot read messages with it.",
            f"Run set {setting} to '{READABLE[setting]}' on it, or set it for the role.",
        )


def reading_text(cursor: psycopg.Cursor[Any]) -> Cursor:
    """Make the cursor return JSON and times as the server's text.

    The codec parses JSON, as on every engine, and a time is parsed when it is first used. psycopg would need 1.6 µs for
    the three times of a claimed row, of the 5 µs that a message of a batch takes.
    """
    for name in ("json", "timestamptz"):
        cursor.adapters.register_loader(name, TextLoader)
    cursor.adapters.register_dumper(Ids, IdsDumper)
    cursor.adapters.register_dumper(Column, ListBinaryDumper)
    return cursor


@contextmanager
def atomic(cursor: Cursor) -> Iterator[None]:
    """Run all of the block's statements or none. In a transaction of the caller or of the runner, do nothing."""
    within = cursor.connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE
    if within or not getattr(cursor, "ours", False):
        yield
        return
    cursor.execute("begin")
    try:
        yield
    except BaseException:
        with suppress(psycopg.Error):  # the connection may be gone
            cursor.execute("rollback")
        raise
    cursor.execute("commit")


def _unreadable(dbapi: Any) -> Iterator[tuple[str, str]]:
    """Yield the settings of a connection under which its times or texts cannot be read, with their values."""
    for setting, value in READABLE.items():
        found = dbapi.info.parameter_status(setting) or value
        if not found.upper().startswith(value.partition(",")[0]):
            yield setting, found
