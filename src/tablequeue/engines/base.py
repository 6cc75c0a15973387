"""What one database system is: its traits, its SQL, its connections, errors and values; and a queue's table on it.

The operations are in the parts of an `Engine`: see engine.py.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

from tablequeue.definition import Definition
from tablequeue.engines.awaited import Awaited
from tablequeue.engines.columns import listed
from tablequeue.engines.connection import Cursor, RawConnection
from tablequeue.engines.operations import conditions
from tablequeue.engines.params import Params as Params
from tablequeue.engines.texts import RANKS, Client, Row, chosen, ready_states, sql_text, statements_in
from tablequeue.errors import TablequeueError
from tablequeue.names import CATALOGUE, HISTORY, PART, check_name, table_of
from tablequeue.states import HEAD_STATES, STATES


@dataclass(slots=True)
class Mark:
    """The highest id that was claimed; every one up to it was seen not to be ready. In a grouped queue, of notes."""

    id: int = 0


def keeps_low_water(definition: Definition) -> bool:
    """Whether messages become ready mostly in the order of their ids. Those at the head of groups do not."""
    return definition.order in ("heap", "fifo") and not definition.grouped


class Statements:
    """The compiled statements of an engine, for the operations that are about no queue."""

    def __init__(self, engine: EngineBase) -> None:
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


class Table(Statements):
    """One queue's table as an engine sees it: its names, its compiled statements, and what is remembered of it."""

    def __init__(self, engine: EngineBase, name: str, definition: Definition, table_name: str | None = None) -> None:
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
        self.claims_above_mark = engine.low_water and keeps_low_water(definition)
        self.mark = Mark()

    def ready_after(self, id: int) -> None:
        """Have claims look for messages after `id` again: some of them may have become ready.

        By a new mark: claims under way raise the one that they began at, else those of a busy process's other threads
        would undo this before anybody came to claim.
        """
        self.mark = Mark(min(self.mark.id, id))

    @property
    def entry(self) -> str:
        """The queue as the catalogue has it: JSON, of its definition and the name of its table."""
        return json.dumps({**self.definition.to_dict(), "table": self.table_name}, sort_keys=True)


class ProcedureSyntax(NamedTuple):
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


class EngineBase(ABC):
    """One database system: its traits, its SQL, its care for connections and errors, and its values."""

    name: ClassVar[str]
    """The folder of the engine, and its SQLAlchemy dialect."""
    ready_index: ClassVar[Mapping[str, str]]
    """The columns of the index that serves a claim, for each order of a definition, as in `ORDER BY`."""
    order_by: ClassVar[Mapping[str, str]]
    """The `ORDER BY` of a claim, for each order."""
    payload_types: ClassVar[Mapping[str, str]]
    """The column type of each payload type."""
    staged_types: ClassVar[Mapping[str, str]]
    """The column type of each payload type where it is staged."""
    expressions: ClassVar[Mapping[str, Mapping[str, str]]]
    """What stands for a column in a list of columns, if not its name; see columns.py."""
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
    promotes: ClassVar[bool] = True
    """Whether a grouped queue needs `promote`; else the database's own triggers do its work at once."""
    sweeps_within: ClassVar[bool] = False
    """Whether a claim in a caller's transaction sweeps within it, for nobody else could write beside it."""
    low_water: ClassVar[bool] = False
    """Whether claims begin at a low-water mark; see low_water.py."""
    closes_before_fork: ClassVar[bool] = False
    """Whether no connection may be open in a process that forks."""
    looks_apart: ClassVar[bool] = False
    """Whether a caller's transaction may not see what others have committed since it began.

    A claim in it then looks for messages on a connection of our own, before it claims them within.
    """
    listener: ClassVar[type[Any] | None] = None
    """The class that learns of pushes, see notifier.py; None: consumers that wait look again and again."""
    procedure_syntax: ClassVar[ProcedureSyntax | None] = None
    """How it writes stored procedures; None: it has none."""

    def __init__(self, dialect: Dialect, schema: str | None = None) -> None:
        self.dialect = dialect
        self.schema = check_name(schema, "schema") if schema is not None else None
        self.prefix = f"{schema}." if schema else ""
        self.shared = Statements(self)
        """What the operations that are about no queue run on."""

    # -- texts ---------------------------------------------------------------------------------------------------

    def render(
        self, operation: str, table: Statements, state: str = "ready", instead: Mapping[str, str] = MappingProxyType({})
    ) -> str:
        """Return the SQL text of an operation, with its header and `:name` parameters.

        instead   what some of its words are to stand for.
        """
        words = self.words(table, state) if isinstance(table, Table) else self.common_words()
        words = {**words, **instead}
        text = listed(sql_text(self.name, operation), self.expressions)
        if isinstance(table, Table):
            text = "\n".join(chosen(text, conditions(table.definition))) + "\n"
        return re.sub(r"\{(\w+)\}", lambda match: words[match[1]], text)

    def common_words(self) -> dict[str, str]:
        """Return the `{words}` of the texts that are about no queue."""
        return {
            "schema": self.schema or "",
            "prefix": self.prefix,
            "catalogue": f"{self.prefix}{CATALOGUE}",
            "schedules": f"{self.prefix}tq{PART}schedules",
            "now": self.clock,
        }

    def words(self, table: Table, state: str = "ready") -> dict[str, str]:
        """Return the `{words}` of the texts about a queue. None of them comes from a user unchecked."""
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
            "claimable": self.claimable(definition) + (" and id > :low_water" if table.claims_above_mark else ""),
            "indexed": ready_states(definition),
            # In a grouped queue a message is blocked until its turn comes.
            "pushed_ready": "blocked" if definition.grouped else "ready",
            "pushed_scheduled": "blocked" if definition.grouped else "scheduled",
            "redriven_due": "due_at" if definition.order == "due" else "null",
            "head": f"state in ({', '.join(map(repr, HEAD_STATES))})",
            "state": state,
            "states": ", ".join(map(repr, STATES)),
            # Of a grouped queue: a turn is noted, so that a message may be made ready.
            "or_noted": f" or exists (select 1 from {queue}{PART}turns)"  # noqa: S608  (checked names)
            if definition.grouped and self.promotes
            else "",
            "streams": f"{queue}{PART}streams",
            "staged": f"{queue}{PART}staged",
            "writers": f"{queue}{PART}writers",
            "staged_type": self.staged_types[definition.payload],
            "default_due": self.clock if definition.order == "due" else "null",
        }

    def claimable(self, definition: Definition) -> str:
        """Return the predicate of a claim, but for the low-water mark."""
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

    def check_url(self, url: sa.URL) -> None:  # noqa: B027 (most engines refuse nothing)
        """Refuse a URL that must not even be connected to."""

    def missing(self, sa_engine: sa.Engine) -> str | None:
        """The path of the database, if the first connection makes it; None if it is there, or no connection makes it.

        `Unreachable` if it could not be made.
        """
        return None

    @abstractmethod
    def adopt(self, dbapi: Any) -> RawConnection:
        """Make a fresh DB-API connection ours: in autocommit, with the settings that the promises need."""

    def is_ours(self, cursor: Cursor) -> bool:
        """Whether the cursor is of a connection of ours, whose work is committed at once or not at all."""
        return getattr(cursor, "ours", False)

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
