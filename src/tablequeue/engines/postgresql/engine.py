"""PostgreSQL: SKIP LOCKED, COPY, a low-water mark against dead index entries, and one round trip a call."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar

import psycopg
import sqlalchemy as sa
from psycopg.adapt import Dumper
from psycopg.rows import tuple_row
from psycopg.types.array import ListBinaryDumper
from psycopg.types.string import TextLoader

from tablequeue import errors
from tablequeue.engines.base import Catalogue, Cursor, Held, Params, Stored, Table, by_history
from tablequeue.engines.low_water import keeps_low_water, marked
from tablequeue.engines.operations import in_autocommit
from tablequeue.engines.postgresql.asyncpg_cursor import AsyncpgCursor
from tablequeue.engines.postgresql.checks import CHECKS
from tablequeue.engines.postgresql.listener import LOCKS, HeldCursor, PostgresHeld, PostgresListener
from tablequeue.engines.postgresql.packs import Packs
from tablequeue.engines.streams import StreamingEngine
from tablequeue.engines.texts import Client, Row, compile_text, quoted_role
from tablequeue.errors import TablequeueError
from tablequeue.names import PART

# Rows, or characters, from which a bulk push is a COPY instead of one INSERT of an array. Measured, COPY's rate over
# the array's: 0.6 with 100 rows of 100 bytes (it needs more round trips), 0.8 with 300, 1.5 with 1,000; 1.1 with 30 of
# 1 kB, 2.0 with 10 of 8 kB, 3.3 with one of 64 kB, 7 with 10 of 1 MB.
COPY_FROM = 1000
COPY_FROM_SIZE = 50_000
# How far behind the last note the mark of the notes stays: notes of other threads, with lower ids, may be committed
# later. Those that are later still are found by the next sweep.
LATE_NOTES = 1000
# Characters of COPY text sent at a time.
COPY_CHUNK = 1 << 18


# The operations by which a message can be had, or at some time: the last column of their rows is {waited_for}.
NOTIFYING = frozenset("push push_many push_each notify release fail redrive redrive_ids arrange".split())

# What the server says of times and texts is read in these settings alone; it reports them when they change.
READABLE = {"DateStyle": "ISO, MDY", "client_encoding": "UTF8"}

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)

# The arrays of push_each, and the parameter of a row that each is made of.
_ARRAYS = {
    "payloads": "payload",
    "headers": "headers",
    "priorities": "priority",
    "groups": "group",
    "keys": "key",
    "dues": "due",
    "delays": "delay",
}


class Ids(list[int]):
    """Ids as one parameter."""


class IdsDumper(Dumper):
    """In one piece; for psycopg to write a list takes 0.7 µs an element."""

    oid = psycopg.adapters.types["int8"].array_oid

    def dump(self, ids: Ids) -> bytes:
        return f"{{{','.join(map(str, ids))}}}".encode()


class Column(list[Any]):
    """A list as one parameter, sent in binary: for psycopg to escape the texts was a third of a bulk write."""


class PostgreSQL(Packs, StreamingEngine):
    name = "postgresql"
    checks = CHECKS
    drivers = ("psycopg",)
    async_drivers: ClassVar = {
        "psycopg": {},
        "asyncpg": {"ssl": "sslmode", "prepared_statement_cache_size": "", "prepared_statement_name_func": ""},
    }
    # A heap promises no order; by id is what the index gives for nothing.
    ready_index: ClassVar = {
        "heap": "id",
        "fifo": "id",
        "lifo": "id",
        "due": "due_at, id",
        "priority": "priority desc, id",
    }
    order_by: ClassVar = {**ready_index, "lifo": "id desc"}
    # json, not jsonb: it keeps the text as it was pushed, with any number and every escape, and costs no parse tree.
    payload_types: ClassVar = {"json": "json", "text": "text", "bytes": "bytea"}
    staged_types: ClassVar = payload_types
    stages_columns = True
    # Not clock_timestamp(): it is volatile, so no index could serve a comparison with it. Not now(): a lease must
    # not begin when the caller's transaction began.
    own_clock = "statement_timestamp()"
    clock = f"coalesce(cast(:now as timestamptz), {own_clock})"
    client = Client(
        "psql",
        "With `psql --single-transaction` it is all or nothing.",
        {
            "bytes": r"'\x00ff'",
            "payloads": "array['1', '2']",
            "priorities": "array[0, 0]",
            "groups": "array['', '']",
            **dict.fromkeys(("keys", "dues", "delays", "push_each.headers"), "array[null, null]"),
            "attempts": "array['attempt']",
            "ids": "array[1]",
            "stage.payload": "array['1', '2']",
            "stage.priority": "null",
            "stage.group": "null",
        },
    )
    listener = PostgresListener
    _pooled = False
    stored = Stored(
        "p_{}",
        partial(quoted_role, '""'),
        "public",
        "select current_schema()",
        words={"payload_text": "payload", "headers_text": "headers"},
    )
    autocommit = in_autocommit("complete_and_claim", "stage")

    def words(self, table: Table, state: str = "ready") -> dict[str, str]:
        definition = table.definition
        array_type = "bytea" if definition.payload == "bytes" else "text"
        waiting, notifying, pushing = (f"hashtextextended('{table.table_name}', {key})" for key in LOCKS)
        now = "cast(extract(epoch from statement_timestamp()) * 100 as bigint)"
        words = super().words(table, state)
        return {
            **words,
            "array_type": array_type,
            # JSON as text, which every driver leaves as it is. The procedures return JSON.
            "payload_text": "cast(payload as text)" if definition.payload == "json" else "payload",
            "headers_text": "cast(headers as text)",
            "staged": f"{words['queue']}{PART}parts",
            "waiting_lock": waiting,
            "pushing_lock": pushing,
            # By where the locked rows are, instead of a search for each id: 0.92 of the server's time for a claim of
            # 1,000. A row that was changed and is ready again since the statement began is locked, but not seen there:
            # a claim above a mark that finds nothing so begins again at once. In a lifo queue, where it does not, one
            # pop in 800 of 8 threads that pop and release the same message got nothing.
            "row": "ctid" if keeps_low_water(definition) else "id",
            # Notifies the consumers that wait, at the commit, or says that they are to be notified apart: listener.py.
            "waited_for": (
                f"(select case\n"
                f"    when :within and pg_advisory_xact_lock_shared({pushing}) is null then null\n"
                f"    when pg_try_advisory_lock({waiting}) then not pg_advisory_unlock({waiting})\n"
                f"    when :within then true\n"
                f"    when not pg_try_advisory_xact_lock({notifying} # {now}) then false\n"
                f"    else pg_notify('{table.table_name}', '') is null end)"
            ),
        }

    def compile(self, text: str) -> str:
        return compile_text(text, self.dialect)

    # -- connections and errors ------------------------------------------------------------------------------------

    def hold(self, dbapi: Any) -> Held:
        dbapi.autocommit = True  # a call is one statement: no BEGIN and COMMIT around it, one round trip
        dbapi.cursor_factory = HeldCursor
        held = PostgresHeld(dbapi, self._cursor(dbapi))
        held.cursor.execute("select current_setting('default_transaction_isolation'), pg_backend_pid()")
        isolation, session = held.cursor.fetchone()
        # A pooler between us and the server, as PgBouncer, gives a number of its own for the session.
        self._pooled = held.pooled = session != dbapi.info.backend_pid
        if held.pooled:
            dbapi.prepare_threshold = None  # the next call may run in a session that has not prepared it
        elif dbapi.prepare_threshold:
            # From its first run on, not its sixth. In a session of 10 cycles of push, pop and complete the server's
            # share of one is 1.3 ms instead of 1.65; a single statement is a round trip more. None is the caller's.
            dbapi.prepare_threshold = 0
        if isolation != "read committed":
            # Under repeatable read a claim that meets another one fails instead of passing over it.
            if held.pooled:
                raise errors.BadUrl(
                    f"Transactions are {isolation} by default, and through a pooler that cannot be changed for ours.",
                    "Set default_transaction_isolation of the role to 'read committed', or connect directly.",
                )
            held.cursor.execute("set session characteristics as transaction isolation level read committed")
        for setting, found in _unreadable(dbapi):
            if held.pooled:
                raise errors.BadUrl(
                    f"The setting {setting} is {found}, and through a pooler that cannot be changed for ours.",
                    f"Set {setting} of the role to {READABLE[setting]}, or connect directly.",
                )
            held.cursor.execute(f"set {setting} to '{READABLE[setting]}'")
        return held

    def commits_each(self, dbapi: Any) -> bool:
        driver = getattr(dbapi, "driver_connection", dbapi)
        if type(driver).__module__.startswith("asyncpg"):
            return dbapi.autocommit and not driver.is_in_transaction()
        return driver.autocommit and driver.info.transaction_status == psycopg.pq.TransactionStatus.IDLE

    def join(self, dbapi: Any) -> Cursor:
        for setting, found in _unreadable(dbapi):
            raise errors.BadInput(
                f"The setting {setting} of the connection is {found}, in which messages cannot be read.",
                f"Run set {setting} to '{READABLE[setting]}' on it, or set it for the role.",
            )
        return self._cursor(dbapi)

    def _cursor(self, dbapi: Any) -> Cursor:
        if self._pooled:
            dbapi.prepare_threshold = None
        cursor = dbapi.cursor(row_factory=tuple_row)
        # As the server's text: the codec reads JSON, as on every engine, and a time is read when somebody looks at it.
        # For psycopg to read the three times of a claimed row took 1.6 of the 5 µs that a message of a batch takes.
        for name in ("json", "timestamptz"):
            cursor.adapters.register_loader(name, TextLoader)
        cursor.adapters.register_dumper(Ids, IdsDumper)
        cursor.adapters.register_dumper(Column, ListBinaryDumper)
        return cursor

    def join_async(self, adapted: Any) -> Cursor:
        if type(adapted.driver_connection).__module__.startswith("asyncpg"):
            return AsyncpgCursor(adapted)
        return super().join_async(adapted)

    def translate(self, error: Exception) -> TablequeueError | None:
        if not isinstance(error, psycopg.Error):
            return None
        state = error.sqlstate or ""
        # In one line: the driver's own messages have several.
        words = " ".join((error.diag.message_primary or str(error)).split()).rstrip(".")
        for pattern, kind, cause, remedy in _ERRORS:
            if re.match(pattern, state):
                return kind(cause.format(words), remedy)
        if isinstance(error, psycopg.OperationalError) and not state:
            return errors.ConnectionLost(
                f"The connection to PostgreSQL broke: {words}.",
                "Check that the server runs; whether this call took effect is not known, the next one reconnects.",
            )
        return errors.DatabaseError(f"PostgreSQL refused the statement: {words}.", "Check the data and the server log.")

    def is_transient(self, error: Exception) -> bool:
        if not isinstance(error, psycopg.Error):
            return False
        if error.sqlstate == "23505":  # two that arranged the same group at once
            return (error.diag.constraint_name or "").endswith("__front")
        return error.sqlstate in ("40001", "40P01")

    def literal(self, cursor: Cursor, table: Table, params: Params) -> str:
        statement = table.statement(params["operation"])
        client = psycopg.ClientCursor(cursor.connection)
        client.adapters.register_dumper(Ids, IdsDumper)
        return client.mogrify(statement, params)

    def arrow(self, url: sa.URL) -> Any:
        try:
            from tablequeue.engines.postgresql.adbc import Adbc
        except ImportError:
            return None
        return Adbc(url)

    # -- values ----------------------------------------------------------------------------------------------------

    def dump_time(self, time: datetime) -> datetime:
        return time

    def load_time(self, value: Any) -> datetime:
        if not isinstance(value, str):
            return value.astimezone(UTC)
        try:
            return datetime.fromisoformat(value).astimezone(UTC)
        except (ValueError, OverflowError):
            # Of somebody's own SQL: a time before the first or after the last year that Python has.
            return FIRST if value.startswith("-") or value.endswith("BC") else LAST

    def dump_ids(self, ids: Sequence[int]) -> Ids:
        return Ids(ids)

    def rank(self, order: str) -> Callable[[Row], Any] | None:
        # As text, times of different offsets from UTC do not compare.
        return (lambda row: (self.load_time(row[10]), row[0])) if order == "due" else super().rank(order)

    # -- operations ------------------------------------------------------------------------------------------------

    def push_many(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        payloads = params["payloads"]
        small = len(payloads) < COPY_FROM and sum(map(len, payloads)) < COPY_FROM_SIZE
        if small or not hasattr(cursor, "copy"):
            return sorted(row[0] for row in self._rows(cursor, table, "push_many", params))
        cursor.execute(table.statement("push_reserve"), {**params, "n": len(payloads)})
        ids, pushed_at, due_at, state = cursor.fetchone()
        shared = (*(params[name] for name in ("headers", "producer", "priority", "group")), pushed_at, due_at)
        rest = "".join(f"\t{_copy_text(value)}" for value in shared)
        # Our own text, not copy.write_row(): the columns that all rows share are escaped once.
        with cursor.copy(table.statement("push_copy")) as copy:
            for chunk in _copy_lines(ids, payloads, f"{rest}\t{state}\n"):
                copy.write(chunk)
        self.notify(cursor, table, {})
        return ids

    def arrange(self, cursor: Cursor, table: Table, params: Params) -> int:
        # A grouped queue's mark is that of its notes.
        mark = marked(table).mark
        ((arranged, last, _),) = self._rows(cursor, table, "arrange", params | {"noted": mark.id})
        mark.id = max(0, (last or 0) - LATE_NOTES)
        return arranged

    def stage(self, cursor: Cursor, table: Table, params: Params) -> None:
        columns = {name: Column(value) for name, value in params.items() if isinstance(value, list)}
        self._run(cursor, table, "stage", params | columns)

    def publish(self, cursor: Cursor, table: Table, params: Params) -> int:
        self._run(cursor, table, "publish_keyed" if params["keyed"] else "publish", params)
        pushed = cursor.rowcount
        self.notify(cursor, table, {})
        return pushed

    def complete_and_claim(
        self, cursor: Cursor, table: Table, params: Params
    ) -> tuple[Sequence[int] | None, list[Row]]:
        if max(params["number"], params["n"]) >= self.least_packed:
            # Two statements, of which either may be of a pack.
            with transaction(cursor) if self.commits(cursor) else nullcontext():
                return super().complete_and_claim(cursor, table, params)
        mark = marked(table).mark
        rows = self._claimed(cursor, table, by_history("complete_and_claim", table), params | {"low_water": mark.id})
        if not rows:  # what is below the mark
            return None, self.claim(cursor, table, params)
        if rows[0][0] is None:  # some are in a pack, or lost
            rest = self.complete(cursor, table, params | {"token": params["held"]})
            completed = [*(rows[0][-1] or ()), *rest]
            return (completed, []) if len(completed) < params["number"] else (None, self.claim(cursor, table, params))
        mark.id = rows[-1][0]
        return None, rows

    def push_each(self, cursor: Cursor, table: Table, params: Params) -> list[int | None]:
        rows = params["rows"]
        arrays = {array: [row[name] for row in rows] for array, name in _ARRAYS.items()}
        return [row[0] for row in self._rows(cursor, table, "push_each", {**params, **arrays})]

    def notify(self, cursor: Cursor, table: Table, params: Params) -> None:
        self._rows(cursor, table, "notify", params)

    def commits(self, cursor: Cursor) -> bool:
        return getattr(cursor, "ours", False)

    # -- private -----------------------------------------------------------------------------------------------------

    def _rows(self, cursor: Cursor, table: Catalogue, operation: str, params: Params) -> list[Row]:
        if operation not in NOTIFYING:
            return super()._rows(cursor, table, operation, params)
        rows = super()._rows(cursor, table, operation, params | {"within": not self.commits(cursor)})
        if rows and rows[0][-1]:
            assert isinstance(table, Table), "of a push"
            table.notifies_apart = True
        return rows


def _unreadable(dbapi: Any) -> Iterator[tuple[str, str]]:
    """The settings of a connection in which its times, or its texts, do not come as this module reads them."""
    for setting, value in READABLE.items():
        found = dbapi.info.parameter_status(setting) or value
        if not found.upper().startswith(value.partition(",")[0]):
            yield setting, found


@contextmanager
def transaction(cursor: Cursor) -> Iterator[None]:
    """Around several statements on a held connection, whose statements are a transaction each."""
    cursor.execute("begin")
    try:
        yield
    except BaseException:
        with suppress(psycopg.Error):  # the connection may be gone
            cursor.execute("rollback")
        raise
    cursor.execute("commit")


def _copy_text(value: Any) -> str:
    r"""A value in COPY's text format: \N is null; backslash, newline, return and tab are escaped."""
    if value is None:
        return r"\N"
    if isinstance(value, bytes):
        return rf"\\x{value.hex()}"
    return str(value).replace("\\", r"\\").replace("\n", r"\n").replace("\r", r"\r").replace("\t", r"\t")


def _copy_lines(ids: Sequence[int], payloads: Sequence[str | bytes], rest: str) -> Iterator[str]:
    lines: list[str] = []
    size = 0
    for id, payload in zip(ids, payloads, strict=True):
        line = f"{id}\t{_copy_text(payload)}{rest}"
        lines.append(line)
        size += len(line)
        if size >= COPY_CHUNK:
            yield "".join(lines)
            lines.clear()
            size = 0
    yield "".join(lines)


# SQLSTATE pattern, exception, cause, remedy; the first that matches. {} is the server's own sentence.
_ERRORS: tuple[tuple[str, type[TablequeueError], str, str], ...] = (
    (
        "22P02|22P05|2203|22021|22001|22000|54000",
        errors.BadPayload,
        "PostgreSQL cannot store a value: {}.",
        "Change the value, or use a bytes queue; nothing was pushed.",
    ),
    ("22008", errors.BadInput, "PostgreSQL cannot store a time: {}.", "Give a time between 4713 BC and 294276 AD."),
    # The errors of tablequeue's own functions; {} has no remedy, which is in the hint.
    ("TQ001", errors.BadInput, "{}.", "Correct the options."),
    ("TQ002", errors.DuplicateKey, "{}.", "Push with another key, or have such conflicts skipped."),
    ("TQ003", errors.LeaseLost, "{}.", "Make the lease longer than the work, or extend it in time."),
    ("53100", errors.Full, "The disk of the PostgreSQL server is full: {}.", "Free some space and try again."),
    ("53300", errors.Unreachable, "PostgreSQL has no connection left: {}.", "Raise max_connections, or use fewer."),
    ("25006", errors.ReadOnly, "The PostgreSQL server is read-only: {}.", "Connect to the primary server."),
    # Of no schema in the search path it tells only when something is to be created.
    ("3F000", errors.NoRights, "PostgreSQL has no schema for the queues: {}.", "Name one that the user may use."),
    ("42501", errors.NoRights, "The database user may not do this: {}.", "Grant the rights, or use another user."),
    ("40001|40P01", errors.Conflict, "PostgreSQL rolled the transaction back: {}.", "Roll back and try it again."),
    ("55P03|57014", errors.Locked, "PostgreSQL gave up waiting: {}.", "Try again when the other transaction ended."),
    (
        "25P02",
        errors.DatabaseError,
        "The transaction of the connection had failed before: {}.",
        "Roll it back first.",
    ),
    ("42P01", errors.QueueNotFound, "A table of the queue is gone: {}.", "Create the queue again."),
    (
        "42P07|42710|23505",
        errors.QueueDiffers,
        "The database has something of that name that is not this queue: {}.",
        "Choose another queue name, or rename what is there.",
    ),
    (
        "57P0|08",
        errors.ConnectionLost,
        "PostgreSQL closed the connection: {}.",
        "Check that the server runs; whether this call took effect is not known, the next one reconnects.",
    ),
)
