"""What an engine must supply: its traits, its care for connections and errors, and the operations.

The seam is the operation, not the statement. An operation of the same name as its `.sql` file runs that file; an
engine overrides the method only where it needs more than that.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

from tablequeue.definition import Definition
from tablequeue.engines.awaited import Awaited
from tablequeue.engines.operations import UPGRADES, created_by, holds, wanted
from tablequeue.engines.scheduling import Scheduling
from tablequeue.engines.texts import (
    COLUMNS,
    RANKS,
    Client,
    Row,
    ready_states,
    sql_text,
    statements_in,
)
from tablequeue.errors import TablequeueError
from tablequeue.message import STATES
from tablequeue.names import CATALOGUE, HISTORY, PART, check_name, table_of

Cursor = Any  # a DB-API cursor: the drivers share no type
Params = dict[str, Any]
T = TypeVar("T")


class Catalogue:
    """What the operations that are about no queue run on: the compiled statements of an engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._compiled: dict[tuple[str, str], list[str]] = {}

    def statements(self, operation: str, state: str = "ready") -> list[str]:
        """The statements of an operation for the driver; compiled once.

        `state` is spelled into the text: a partial index serves `state = 'ready'`, never `state = ?`.
        """
        try:
            return self._compiled[operation, state]
        except KeyError:
            texts = self.engine.split(self.engine.render(operation, self, state))
            compiled = [self.engine.compile(text) for text in texts]
            self._compiled[operation, state] = compiled
            return compiled

    def statement(self, operation: str, state: str = "ready") -> str:
        """The statement of an operation that is a single one on this engine."""
        (statement,) = self.statements(operation, state)
        return statement


class Table(Catalogue):
    """One queue's table as an engine sees it: its names, its compiled statements, and what is remembered of it."""

    def __init__(self, engine: Engine, name: str, definition: Definition, table_name: str | None = None) -> None:
        super().__init__(engine)
        self.name = name
        self.table_name = table_name or table_of(name)
        self.definition = definition
        self.rank = engine.rank(definition.order)
        # When the next sweep, and the next look at a history with a retention, are due on this process's monotonic
        # clock; see operations/claim.py.
        self.next_sweep = 0.0
        self.next_purge = 0.0
        self.notifies_apart = False
        """Whether consumers are to be notified, from a connection of our own, of a push in a caller's transaction."""

    @property
    def entry(self) -> str:
        """The queue as the catalogue has it: JSON, of its definition and the name of its table."""
        return json.dumps({**self.definition.to_dict(), "table": self.table_name}, sort_keys=True)


class Held:
    """A raw connection that a runner holds, in autocommit, with its cursor."""

    def __init__(self, dbapi: Any, cursor: Cursor) -> None:
        self.dbapi = dbapi
        self.cursor = cursor

    def transact(self, work: Callable[[], T]) -> T:
        """Do the work in a transaction; the caller rolls back after an error."""
        self.begin()
        result = work()
        self.commit()
        return result

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


class Stored(NamedTuple):
    """How an engine writes its stored procedures; see procedures.py."""

    parameter: str
    """The name of a parameter, `{}` in the operations."""
    role: Callable[[str], str]
    """The name of a role as the SQL has it; `BadInput` if it can be none."""
    schema: str | None = None
    """Where the printed text puts them if no schema is named; None: where the connection is."""
    current_schema: str = ""
    """The query for where the connection is, if `schema` is not None."""
    head: str = ""
    """What comes before the text of all procedures of a queue."""
    foot: str = ""
    """What comes after it."""
    dropped_first: tuple[str, ...] = ()
    """The dialects that cannot replace a procedure: it is dropped before, and the rights on it with it."""
    words: Mapping[str, str] = MappingProxyType({})
    """What some words of the texts stand for in procedures instead."""
    there: str = ""
    """The query for the names of a queue's procedures; "" if dropping those that are not there costs nothing."""
    kept: Callable[[str, str], str] = lambda statement, target: statement
    """A statement whose rows go into a variable of the procedure; see `into=` in procedures.py."""


class Engine(Scheduling, ABC):
    """One database system. Its SQL lives in `sql/`, a file an operation; nothing above this class names it."""

    name: ClassVar[str]
    """The folder of the engine, and its SQLAlchemy dialect."""
    ready_index: ClassVar[Mapping[str, str]]
    """The columns of the index that serves a claim, for each order of a definition, as in `ORDER BY`."""
    order_by: ClassVar[Mapping[str, str]]
    """The `ORDER BY` of a claim, for each order."""
    payload_types: ClassVar[Mapping[str, str]]
    """The column type of each payload type."""
    own_clock: ClassVar[str]
    """The database's clock as an SQL expression."""
    clock: ClassVar[str]
    """The same, which `:now` overrides."""
    client: ClassVar[Client]
    autocommit: ClassVar[frozenset[str]]
    """The operations that need no transaction around them; see operations.py."""
    drivers: ClassVar[tuple[str, ...]]
    """The SQLAlchemy drivers it works through, the preferred one first."""
    async_drivers: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """SQLAlchemy's async drivers that `join_async` knows, the preferred one first.

    Each with those options of its URLs that `drivers[0]` calls otherwise; "" for what it does not have.
    """
    connect_args: ClassVar[Mapping[str, Any]] = {}
    """Options of the driver's `connect`, for those that the URL does not give."""
    schema_version: ClassVar[int] = 4
    """Of the tables that it makes and works with."""
    has_schemas: ClassVar[bool] = True
    arranges: ClassVar[bool] = True
    """Whether a grouped queue needs `arrange`; else the database's own triggers do its work at once."""
    sweeps_within: ClassVar[bool] = False
    """Whether a claim in a caller's transaction sweeps within it, for nobody else could write beside it."""
    closes_before_fork: ClassVar[bool] = False
    """Whether no connection may be open in a process that forks."""
    looks_apart: ClassVar[bool] = False
    """Whether a caller's transaction may not see what others have committed since it began.

    A claim in it then looks for messages on a connection of our own, before it claims them within.
    """
    listener: ClassVar[type[Any] | None] = None
    """The class that learns of pushes, see notifier.py; None: consumers that wait look again and again."""
    stored: ClassVar[Stored | None] = None
    """How it writes stored procedures; None: it has none."""

    def __init__(self, dialect: Dialect, schema: str | None = None) -> None:
        self.dialect = dialect
        self.schema = check_name(schema, "schema") if schema is not None else None
        self.prefix = f"{schema}." if schema else ""
        self.catalogue = Catalogue(self)

    # -- texts ---------------------------------------------------------------------------------------------------

    def render(
        self, operation: str, table: Catalogue, state: str = "ready", instead: Mapping[str, str] = MappingProxyType({})
    ) -> str:
        """The SQL text of an operation, with its header and `:name` parameters.

        instead   what some of its words are to stand for.
        """
        words = self.words(table, state) if isinstance(table, Table) else self.common_words()
        words = {**words, **instead}
        return re.sub(r"\{(\w+)\}", lambda match: words[match[1]], sql_text(self.name, operation))

    def common_words(self) -> dict[str, str]:
        """The `{words}` of the texts that are about no queue."""
        return {
            "schema": self.schema or "",
            "prefix": self.prefix,
            "catalogue": f"{self.prefix}{CATALOGUE}",
            "schedules": f"{self.prefix}tq{PART}schedules",
            "now": self.clock,
        }

    def words(self, table: Table, state: str = "ready") -> dict[str, str]:
        """The `{words}` of the texts about a queue. None of them comes from a user unchecked."""
        if state not in STATES:
            raise ValueError(state)
        definition = table.definition
        queue = f"{self.prefix}{table.table_name}"
        return {
            **self.common_words(),
            "queue": queue,
            "history": f"{queue}{HISTORY}",
            "table": table.table_name,  # without the schema: the stem of index names
            "payload_type": self.payload_types[definition.payload],
            "turns": f"{queue}{PART}turns",
            "turn": f"{queue}{PART}turn",
            "order_by": self.order_by[definition.order],
            "ready_index": self.ready_index[definition.order],
            "claimable": self.claimable(definition),
            "indexed": ready_states(definition),
            # In a grouped queue a message is blocked until its turn comes.
            "pushed_ready": "blocked" if definition.grouped else "ready",
            "pushed_scheduled": "blocked" if definition.grouped else "scheduled",
            "redriven_due": "due_at" if definition.order == "due" else "null",
            "front": "state in ('ready', 'scheduled', 'in_progress')",
            "state": state,
            # Of a grouped queue: a turn is noted, so that a message may be made ready.
            "or_noted": f" or exists (select 1 from {queue}{PART}turns)"  # noqa: S608  (checked names)
            if definition.grouped and self.arranges
            else "",
        }

    def claimable(self, definition: Definition) -> str:
        """The predicate of a claim."""
        states = ready_states(definition)
        return f"{states} and due_at <= {self.clock}" if definition.order == "due" else states

    def split(self, text: str) -> list[str]:
        """What of a file is sent at once: its statements, or batches of them."""
        return statements_in(text)

    @abstractmethod
    def compile(self, text: str) -> str:
        """A statement with `:name` parameters in the driver's own style, to be run with a dict."""

    def table(self, name: str, definition: Definition, table_name: str | None = None) -> Table:
        return Table(self, name, definition, table_name)

    # -- connections and errors ------------------------------------------------------------------------------------

    def check_url(self, url: sa.URL) -> None:
        """Refuse what must not even be connected to."""

    def missing(self, sa_engine: sa.Engine) -> str | None:
        """The path of the database, if the first connection makes it; None if it is there, or no connection makes it.

        `Unreachable` if it could not be made.
        """
        return None

    @abstractmethod
    def hold(self, dbapi: Any) -> Held:
        """Make a fresh raw connection ours: autocommit, with the settings the promises need."""

    @abstractmethod
    def commits_each(self, dbapi: Any) -> bool:
        """Whether a caller's connection commits each statement: it is in autocommit, and no transaction is open.

        It may be SQLAlchemy's adapter of an async driver, too.
        """

    @abstractmethod
    def join(self, dbapi: Any) -> Cursor:
        """A cursor that yields tuples, inside the transaction of a caller's raw connection."""

    def join_async(self, adapted: Any) -> Cursor:
        """The same of SQLAlchemy's adapted connection, whose driver is one of `async_drivers`."""
        return self.join(Awaited(adapted, adapted.driver_connection))

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

    def rank(self, order: str) -> Callable[[Row], Any] | None:
        """The key that sorts claimed rows in an order; None: as tuples, by id."""
        return RANKS[order]

    # -- the catalogue -----------------------------------------------------------------------------------------------

    def lookup(self, cursor: Cursor, table: Catalogue, params: Params) -> Row | None:
        """`(definition, schema_version)` of a queue."""
        return self._fetch(cursor, table, "lookup", params, cursor.fetchone)

    def names(self, cursor: Cursor, table: Catalogue, params: Params) -> list[str]:
        return [row[0] for row in self._rows(cursor, table, "names", params)]

    def create(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Make the tables of a queue and enter it in the catalogue."""
        for operation in created_by(self.name, table.definition):
            self._run(cursor, table, operation, params)
        self._run(cursor, table, "register", params)

    def upgrade(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Bring the tables of a queue from one schema version to the next, `params["schema_version"]`.

        `params["names"]` are those of all queues: until version 3 a part of a queue could have the name of another one.
        """
        for operation in wanted(self.name, UPGRADES[params["schema_version"]], holds(table.definition)):
            part = operation.partition("_if_")[2]
            if not part or self._has_old(cursor, table, part, params):
                self._alter(cursor, table, operation, params)
        self._run(cursor, table, "set_version", params)

    def _alter(self, cursor: Cursor, table: Table, operation: str, params: Params) -> None:
        """One operation of an upgrade. Where DDL commits by itself, what was done before a crash is passed over."""
        self._run(cursor, table, operation, params)

    def _has_old(self, cursor: Cursor, table: Table, part: str, params: Params) -> bool:
        """Whether there is a table of the name that a part had until version 3, and no queue's."""
        old = part if part == "schedules" else f"{table.name}_{part}"
        return old not in params["names"] and self.has_table(cursor, table, {"table": f"{self.prefix}tq_{old}"})

    def drop(self, cursor: Cursor, table: Table, params: Params) -> None:
        self._run(cursor, table, "drop", params)
        if table.definition.grouped and self.arranges:
            self._run(cursor, table, "drop_groups", params)
        if table.definition.keeps_history:
            self._run(cursor, table, "drop_history", params)
        self._run(cursor, table, "unregister", params)

    # -- messages ----------------------------------------------------------------------------------------------------

    def push(self, cursor: Cursor, table: Table, params: Params) -> int | None:
        """The id of the new message; None if a live one has its key."""
        rows = self._rows(cursor, table, "push", params)
        return rows[0][0] if rows else None

    def notify(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Notify the consumers that wait, if an operation in a caller's transaction could not: see Table."""
        raise NotImplementedError

    @abstractmethod
    def push_many(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        """Push all of `params["payloads"]` with the same options; the ids, aligned with them."""

    @abstractmethod
    def push_each(self, cursor: Cursor, table: Table, params: Params) -> list[int | None]:
        """Push each of `params["rows"]`, parameters of their own; the ids, aligned, None where the key is taken."""

    def find_keys(self, cursor: Cursor, table: Table, params: Params) -> dict[str, int]:
        """Which of `params["keys"]` live messages have, with their ids."""
        return dict(self._rows(cursor, table, "find_keys", params))  # type: ignore[arg-type]

    def claim(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Claim up to `n` messages, in the order of the queue. Rows of CLAIMED."""
        return self._claimed(cursor, table, "claim", params)

    def look(self, cursor: Cursor, table: Table, params: Params) -> Any:
        """What there is to claim, if the engine looks apart: the next claim or take has it as `params["seen"]`."""
        raise NotImplementedError

    def take(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Remove up to `n` messages to the history: finished, or under a `token` to be finished. Rows of CLAIMED."""
        return self._claimed(cursor, table, by_history("take", table), params)

    def sweep(self, cursor: Cursor, table: Table, params: Params) -> int:
        """Up to `n` each of the messages that are due, or whose lease expired, become ready (or dead)."""
        return len(self._rows(cursor, table, "sweep", params))

    def arrange(self, cursor: Cursor, table: Table, params: Params) -> int:
        """In up to `n` groups whose turn came free, the first blocked message becomes ready; in how many."""
        return len(self._rows(cursor, table, "arrange", params))

    def complete(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        """Finish those of `ids` that `token` holds; which they were."""
        once = table.definition.delivery == "at_most_once"
        return self._finished(cursor, table, "complete_at_most_once" if once else by_history("complete", table), params)

    def complete_and_claim(
        self, cursor: Cursor, table: Table, params: Params
    ) -> tuple[Sequence[int] | None, list[Row]]:
        """Complete those of the `number` `ids` that `held` holds; if that was all of them, claim up to `n` messages.

        Of a queue without groups, whose messages have leases. Which were completed (None: all), and the claimed rows.
        """
        completed = self.complete(cursor, table, params | {"token": params["held"]})
        if len(completed) < params["number"]:
            return completed, []
        return None, self.claim(cursor, table, params)

    def fail(self, cursor: Cursor, table: Table, params: Params) -> str | None:
        """Schedule the message `id` again, or bury it; its new state, or None if `token` does not hold it."""
        operation = "fail_at_most_once" if table.definition.delivery == "at_most_once" else "fail"
        rows = self._rows(cursor, table, operation, params)
        return rows[0][0] if rows else None

    def put_back(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Make a message that was taken in this transaction a dead letter, with the `error` after the earlier ones."""
        errors: Any = []
        if table.definition.keeps_history:
            id = params["id"]
            (row,) = self.history(cursor, table, {"low": id, "high": id, "n": 1})
            errors = row[COLUMNS.index("errors")] or []
            self._run(cursor, table, "forget", {"id": id})
        known = json.loads(errors) if isinstance(errors, str) else errors
        values = {name: value for name, value in params.items() if name != "error"}
        self._run(cursor, table, "put_back", values | {"errors": json.dumps([*known, params["error"]])})

    def release(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        """Give back those of `ids` that `token` holds; which they were."""
        return self._finished(cursor, table, "release", params)

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

    def purge_history(self, cursor: Cursor, table: Table, params: Params) -> int:
        """Delete up to `n` messages that left the queue `age` seconds ago or longer; how many."""
        cursor.execute(table.statement("purge_history"), params)
        return cursor.rowcount

    # -- private -----------------------------------------------------------------------------------------------------

    def _claimed(self, cursor: Cursor, table: Table, operation: str, params: Params) -> list[Row]:
        rows = self._rows(cursor, table, operation, params)
        if len(rows) > 1:
            rows.sort(key=table.rank)  # type: ignore[arg-type]  # None: as tuples
        return rows

    def _finished(self, cursor: Cursor, table: Table, operation: str, params: Params) -> list[int]:
        """Which of `ids` the operation has found held by `token`, and changed."""
        return [row[0] for row in self._rows(cursor, table, operation, params)]


def by_history(operation: str, table: Table) -> str:
    return f"{operation}_{'keep' if table.definition.keeps_history else 'none'}"
