"""Connections to PostgreSQL: our own, with the settings that the promises need, and cursors that return text."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from time import monotonic
from typing import Any

import psycopg
from psycopg.rows import tuple_row
from psycopg.types.array import ListBinaryDumper
from psycopg.types.string import TextLoader

from tablequeue import errors
from tablequeue.engines.connection import Cursor, RawConnection, is_quiet
from tablequeue.engines.look_alikes import LookAlike, look_alike
from tablequeue.engines.postgresql.values import Column, Ids, IdsDumper
from tablequeue.engines.silence import Silence, Watch, watch_machine

# The settings under which the server's times and texts can be read, and the driver writes bytes as they are. The server
# reports when they change.
READABLE = {"DateStyle": "ISO, MDY", "client_encoding": "UTF8", "standard_conforming_strings": "on"}


LOOK_ALIKES = (
    LookAlike(
        "cockroachdb",
        "CockroachDB",
        "its SKIP LOCKED skips rows that nobody has locked, and it has no ctid, advisory locks or LISTEN",
    ),
    LookAlike(r"-YB-", "YugabyteDB", "it has no ctid, by which claims find the rows that they have locked"),
)
# It says that it is PostgreSQL; its host tells.
DSQL = LookAlike(r"\.dsql\..*\.on\.aws$", "Aurora DSQL", "it locks no rows, so that consumers get the same messages")


class OwnCursor(psycopg.Cursor[tuple[Any, ...]]):
    """A cursor of a connection of our own: a statement outside of a transaction is committed at once."""

    ours = True

    def written(self, statement: str, params: Mapping[str, Any]) -> str:
        """Return the statement with the values in it."""
        return self._writer.mogrify(statement, params)

    @cached_property
    def _writer(self) -> psycopg.ClientCursor[tuple[Any, ...]]:
        made = psycopg.ClientCursor(self.connection)  # once: it takes 12 µs
        made.adapters.register_dumper(Ids, IdsDumper)
        return made


class PostgreSQLConnection(RawConnection):
    pooled = False
    """Whether each transaction may run in another session, as through PgBouncer: then LISTEN receives nothing."""

    def watch(self, watch: Watch) -> None:
        dbapi, wait = self.dbapi, self.dbapi.wait
        watch_machine(dbapi.fileno())
        dbapi.wait = lambda steps, *given, **options: wait(_watched(steps, dbapi, watch), *given, **options)

    def is_open(self) -> bool:
        return not self.dbapi.closed and is_quiet(self.dbapi.fileno())


def _watched(steps: Generator[Any, Any, Any], dbapi: Any, watch: Watch) -> Generator[Any, Any, Any]:
    """Go through the steps of a call of the driver, and ask the watch while nothing comes between two of them.

    The driver ends a step after 0.1 s, with nothing.
    """
    send = steps.send
    try:
        wanted = next(steps)
        while True:
            while ready := (yield wanted):
                wanted = send(ready)
            silence, since = Silence(watch), monotonic()
            while not ready:
                if monotonic() - since > silence.pause:
                    silence.question()
                    since = monotonic()
                wanted = send(ready)
                ready = yield wanted
            wanted = send(ready)
    except StopIteration as end:
        return end.value
    except ConnectionError as error:
        dbapi.close()
        raise psycopg.OperationalError(str(error)) from error


def refused_server(version: str, host: str = "") -> errors.BadUrl | None:
    """Return the refusal of another server that speaks the protocol; None for PostgreSQL."""
    return look_alike(version, LOOK_ALIKES, "PostgreSQL") or look_alike(host, [DSQL], "PostgreSQL")


def adopt(dbapi: Any, session: str) -> tuple[PostgreSQLConnection, str | None]:
    """Take over a new connection by running the text `session`; return it with the schema of the queues."""
    # What the server said at the login: another one may refuse the first statement.
    status = dbapi.info.parameter_status
    if refusal := refused_server(status("crdb_version") or status("server_version") or "", dbapi.info.host):
        raise refusal
    dbapi.autocommit = True  # a call is one statement: no BEGIN and COMMIT around it, one round trip
    connection = PostgreSQLConnection(dbapi, reading_text(OwnCursor(dbapi, row_factory=tuple_row)))
    options = dbapi.info.get_parameters().get("options", "")
    connection.cursor.execute(session, {"session": dbapi.info.backend_pid, "options": options})
    isolation, number, place, _ = connection.cursor.fetchone()
    # A pooler between us and the server, such as PgBouncer, reports a session number of its own.
    connection.pooled = number != dbapi.info.backend_pid
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
    return connection, place


def check_settings(dbapi: Any) -> None:
    """Refuse a caller's connection if its settings change what we read, or what the driver writes."""
    for setting, found in _unreadable(dbapi):
        raise errors.BadInput(
            f"The setting {setting} of the connection is {found}, and messages cannot be read or written with it.",
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
    # In binary: where array_nulls is off, the text of an array has words instead of nulls. An array of nulls alone is
    # text nevertheless.
    for kind in (Column, list):
        cursor.adapters.register_dumper(kind, ListBinaryDumper)
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


def in_one_message(
    cursor: Cursor, together: Sequence[str], params: Mapping[str, Any], after: Sequence[str] = ()
) -> list[list[Any]]:
    """Run statements in a transaction, and others after its commit, all in one message to the server. Return all rows.

    So no lock of the transaction outlasts the server's own work, whatever becomes of the client, and it is one round
    trip. On a connection of our own, outside of a transaction.
    Sent as text, because a message of prepared statements is several packets, and a pipeline of psycopg took 260 µs
    where two calls took 150 and this 55. Nothing is prepared, so a statement that takes long to plan is in a function.
    """
    bound = [cursor.written(statement, params) for statement in (*together, *after)]
    bound[len(together) : len(together)] = ["commit"]
    try:
        cursor.execute("; ".join(["begin", *bound]), prepare=False)
        rows = [cursor.fetchall() if cursor.description else [] for _ in cursor.results()]
    except BaseException:
        with suppress(psycopg.Error):  # the connection may be gone
            cursor.execute("rollback")
        raise
    return [*rows[1 : 1 + len(together)], *rows[2 + len(together) :]]


def _unreadable(dbapi: Any) -> Iterator[tuple[str, str]]:
    """Yield the settings of a connection under which its times or texts cannot be read, with their values."""
    for setting, value in READABLE.items():
        found = dbapi.info.parameter_status(setting) or value
        if not found.upper().startswith(value.partition(",")[0].upper()):
            yield setting, found
