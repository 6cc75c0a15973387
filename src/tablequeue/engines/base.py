"""What an engine must supply: its traits, its care for connections and errors, and the operations.

The seam is the operation, not the statement. An operation of the same name as its `.sql` file runs that file; an
engine overrides the method only where it needs more than that.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib import resources
from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

from tablequeue.definition import Definition, check_name
from tablequeue.errors import TablequeueError
from tablequeue.message import STATES

Cursor = Any  # a DB-API cursor: the drivers share no type
Params = dict[str, Any]
Row = Sequence[Any]
Operation = Callable[[Cursor, "Table", Params], Any]

# The columns of a stored message, in the order that peek, dead and history select them.
COLUMNS = (
    "id payload headers state attempts producer consumer pushed_at due_at first_popped_at popped_at lease_until "
    "finished_at errors"
).split()


@cache
def sql_text(engine: str, operation: str) -> str:
    """The `.sql` file of one operation, header and all."""
    return resources.files("tablequeue.engines").joinpath(engine, "sql", f"{operation}.sql").read_text("utf-8")


@cache
def operations_of(engine: str) -> tuple[str, ...]:
    folder = resources.files("tablequeue.engines").joinpath(engine, "sql")
    return tuple(sorted(file.name.removesuffix(".sql") for file in folder.iterdir() if file.name.endswith(".sql")))


def statements_in(text: str) -> list[str]:
    """The statements of a file: comments gone, split where a semicolon ends a line."""
    bare = re.sub(r"(?m)^\s*--.*\n?", "", text)
    return [statement for part in re.split(r";[ \t]*(?:\n|$)", bare) if (statement := part.strip())]


class Table:
    """One queue's table as an engine sees it: its names, its compiled statements, and what is remembered of it."""

    def __init__(self, engine: Engine, name: str, definition: Definition) -> None:
        self.engine = engine
        self.name = name
        self.definition = definition
        # When the next sweep is due, on this process's monotonic clock; see operations/claim.py.
        self.next_sweep = 0.0
        self._compiled: dict[tuple[str, str], list[str]] = {}

    def statements(self, operation: str, state: str = "ready") -> list[str]:
        """The statements of an operation for the driver; compiled once.

        `state` is spelled into the text: a partial index serves `state = 'ready'`, never `state = ?`.
        """
        try:
            return self._compiled[operation, state]
        except KeyError:
            texts = statements_in(self.engine.render(operation, self.name, self.definition, state))
            compiled = [self.engine.compile(text) for text in texts]
            self._compiled[operation, state] = compiled
            return compiled

    def statement(self, operation: str, state: str = "ready") -> str:
        """The statement of an operation that is a single one on this engine."""
        (statement,) = self.statements(operation, state)
        return statement


class Held:
    """A raw connection that a runner holds, in autocommit, with its cursor; `begin` to `commit` is a transaction."""

    def __init__(self, dbapi: Any, cursor: Cursor) -> None:
        self.dbapi = dbapi
        self.cursor = cursor

    def begin(self) -> None:
        self.cursor.execute("begin")

    def commit(self) -> None:
        self.cursor.execute("commit")

    def rollback(self) -> None:
        self.cursor.execute("rollback")

    def close(self) -> None:
        self.dbapi.close()

    def forget(self) -> None:
        """In a forked child: let go of what would keep a lock of the dead parent alive. The connection stays."""


class Engine(ABC):
    """One database system. Its SQL lives in `sql/`, a file an operation; nothing above this class names it."""

    name: ClassVar[str]
    """The folder of the engine, and its SQLAlchemy dialect."""
    order_by: ClassVar[Mapping[str, str]]
    """The `ORDER BY` of a claim, for each order of a definition."""
    payload_types: ClassVar[Mapping[str, str]]
    """The column type of each payload type."""
    clock: ClassVar[str]
    """The database's clock as an SQL expression; `:now` overrides it."""
    alone: ClassVar[frozenset[str]]
    """The operations that need no transaction around them: reads, and single statements that are one by themselves."""
    drivers: ClassVar[tuple[str, ...]]
    """The SQLAlchemy drivers it works through, the preferred one first."""
    has_schemas: ClassVar[bool] = True

    def __init__(self, dialect: Dialect, schema: str | None = None) -> None:
        self.dialect = dialect
        self.schema = check_name(schema, "schema") if schema is not None else None

    # -- texts ---------------------------------------------------------------------------------------------------

    def render(self, operation: str, name: str, definition: Definition, state: str = "ready") -> str:
        """The SQL text of an operation on the queue `name`, with its header and `:name` parameters."""
        words = self.words(name, definition, state)
        return re.sub(r"\{(\w+)\}", lambda match: words[match[1]], sql_text(self.name, operation))

    def words(self, name: str, definition: Definition, state: str) -> dict[str, str]:
        """What the `{words}` of the texts stand for. None of them comes from a user unchecked."""
        if state not in STATES:
            raise ValueError(state)
        prefix = f"{self.schema}." if self.schema else ""
        return {
            "schema": self.schema or "",
            "catalogue": f"{prefix}tq_queues",
            "queue": f"{prefix}tq_{name}",
            "history": f"{prefix}tq_{name}_history",
            "table": f"tq_{name}",  # without the schema: the stem of index names
            "payload_type": self.payload_types[definition.payload],
            "order_by": self.order_by[definition.order],
            "state": state,
            "now": self.clock,
        }

    @abstractmethod
    def compile(self, text: str) -> str:
        """A statement with `:name` parameters in the driver's own style, to be run with a dict."""

    def table(self, name: str, definition: Definition) -> Table:
        return Table(self, name, definition)

    # -- connections and errors ------------------------------------------------------------------------------------

    @abstractmethod
    def hold(self, dbapi: Any) -> Held:
        """Make a fresh raw connection ours: autocommit, with the settings the promises need."""

    @abstractmethod
    def join(self, dbapi: Any) -> Cursor:
        """A cursor that yields tuples, inside the transaction of a caller's raw connection."""

    @abstractmethod
    def translate(self, error: Exception) -> TablequeueError | None:
        """The driver's error as one of ours; None if it is no error of the driver."""

    def is_transient(self, error: Exception) -> bool:
        """Whether the database rolled back our transaction and asks to try it again."""
        return False

    # -- values ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def dump_time(self, time: datetime) -> Any:
        """An aware time as the driver wants it."""

    @abstractmethod
    def load_time(self, value: Any) -> datetime:
        """The inverse, also of a time inside the errors; aware, in UTC."""

    @abstractmethod
    def dump_ids(self, ids: Sequence[int]) -> Any:
        """A list of ids as one parameter."""

    # -- the catalogue -----------------------------------------------------------------------------------------------

    @abstractmethod
    def has_catalogue(self, cursor: Cursor, table: Table, params: Params) -> bool:
        """Whether the catalogue's table is there."""

    def lookup(self, cursor: Cursor, table: Table, params: Params) -> Row | None:
        """`(definition, schema_version)` of a queue."""
        return self._fetch(cursor, table, "lookup", params, cursor.fetchone)

    def names(self, cursor: Cursor, table: Table, params: Params) -> list[str]:
        return [row[0] for row in self._rows(cursor, table, "names", params)]

    def create(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Make the tables of a queue and enter it in the catalogue."""
        self._run(cursor, table, "create", params)
        if table.definition.history == "keep":
            self._run(cursor, table, "create_history", params)
        self._run(cursor, table, "register", params)

    @abstractmethod
    def install(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Make the catalogue if it is not there, and let one creator at a time go on from here."""

    def drop(self, cursor: Cursor, table: Table, params: Params) -> None:
        self._run(cursor, table, "drop", params)
        if table.definition.history == "keep":
            self._run(cursor, table, "drop_history", params)
        self._run(cursor, table, "unregister", params)

    # -- messages ----------------------------------------------------------------------------------------------------

    def push(self, cursor: Cursor, table: Table, params: Params) -> int:
        cursor.execute(table.statement("push"), params)
        return cursor.fetchone()[0]

    @abstractmethod
    def push_many(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        """Push all of `params["payloads"]`; the ids, aligned with them."""

    def claim(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Claim up to `n` ready messages.

        Rows of (id, payload, headers, attempts, pushed_at, popped_at, lease_until).
        """
        cursor.execute(table.statement("claim"), params)
        rows = cursor.fetchall()
        if len(rows) > 1:
            rows.sort()  # RETURNING promises no order on any engine
        return rows

    def sweep(self, cursor: Cursor, table: Table, params: Params) -> int:
        """Up to `n` each of the messages that are due, or whose lease expired, become ready (or dead)."""
        return len(self._rows(cursor, table, "sweep", params))

    def complete(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        """Finish those of `ids` that `token` holds; which they were."""
        rows = self._rows(cursor, table, f"complete_{table.definition.history}", params)
        return [row[0] for row in rows]

    def fail(self, cursor: Cursor, table: Table, params: Params) -> str | None:
        """Schedule the message `id` again, or bury it; its new state, or None if `token` does not hold it."""
        row = self._fetch(cursor, table, "fail", params, cursor.fetchone)
        return row and row[0]

    def release(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        """Give back those of `ids` that `token` holds; which they were."""
        return [row[0] for row in self._rows(cursor, table, "release", params)]

    def extend(self, cursor: Cursor, table: Table, params: Params) -> Any:
        """The new end of the lease, or None if `token` does not hold the message."""
        row = self._fetch(cursor, table, "extend", params, cursor.fetchone)
        return row and row[0]

    def purge(self, cursor: Cursor, table: Table, params: Params) -> int:
        """Delete up to `n` messages in `params["state"]`; how many."""
        cursor.execute(table.statement("purge", params["state"]), params)
        return cursor.rowcount

    def purge_ids(self, cursor: Cursor, table: Table, params: Params) -> int:
        """Delete those of `ids` that are in `params["state"]`; how many."""
        cursor.execute(table.statement("purge_ids", params["state"]), params)
        return cursor.rowcount

    def redrive(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        """Up to `n` dead letters after the id `after` become ready with no attempts made; which they were."""
        return sorted(row[0] for row in self._rows(cursor, table, "redrive", params))

    def redrive_ids(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        return sorted(row[0] for row in self._rows(cursor, table, "redrive_ids", params))

    # -- looking -----------------------------------------------------------------------------------------------------

    def peek(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """The first `n` messages in `params["state"]`, as COLUMNS."""
        cursor.execute(table.statement("peek", params["state"]), params)
        return cursor.fetchall()

    def find(self, cursor: Cursor, table: Table, params: Params) -> Row | None:
        return self._fetch(cursor, table, "find", params, cursor.fetchone)

    def stats(self, cursor: Cursor, table: Table, params: Params) -> Row:
        """ready, scheduled, in_progress, dead, oldest ready's age in seconds (or None), finished (or None)."""
        row = self._fetch(cursor, table, "stats", params, cursor.fetchone)
        finished = None
        if table.definition.history == "keep":
            finished = self._fetch(cursor, table, "stats_history", params, cursor.fetchone)[0]
        return (*row, finished)

    def history(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """The last `n` finished messages with ids from `low` to `high`, highest id first, as COLUMNS."""
        return self._rows(cursor, table, "history", params)

    def history_bounds(self, cursor: Cursor, table: Table, params: Params) -> Row:
        """Lowest and highest id in the history, or two Nones."""
        return self._fetch(cursor, table, "history_bounds", params, cursor.fetchone)

    # -- private -----------------------------------------------------------------------------------------------------

    def _run(self, cursor: Cursor, table: Table, operation: str, params: Params) -> None:
        """Run a file's statements in turn; the cursor is left at the last one."""
        for statement in table.statements(operation):
            cursor.execute(statement, params)

    def _rows(self, cursor: Cursor, table: Table, operation: str, params: Params) -> list[Row]:
        self._run(cursor, table, operation, params)
        return cursor.fetchall()

    def _fetch(self, cursor: Cursor, table: Table, operation: str, params: Params, fetch: Callable[[], Any]) -> Any:
        self._run(cursor, table, operation, params)
        return fetch()


def compile_text(text: str, dialect: Dialect) -> str:
    """SQLAlchemy's rendering of `:name` parameters in a dialect's paramstyle."""
    return str(sa.text(text).compile(dialect=dialect))
