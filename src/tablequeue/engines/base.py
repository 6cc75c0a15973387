"""The base of an engine: the traits of a database system, its SQL, its connections and errors, and its values.

The operations are in the parts of an `Engine`: see engine.py.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from threading import Lock
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

from tablequeue.engines.awaited import Awaited
from tablequeue.engines.columns import listed
from tablequeue.engines.conditions import TRAITS, conditions
from tablequeue.engines.connection import Cursor, RawConnection
from tablequeue.engines.operation import Effect
from tablequeue.engines.params import Params
from tablequeue.engines.plan import Plan
from tablequeue.engines.procedure_syntax import ProcedureSyntax
from tablequeue.engines.table import Statements, Table
from tablequeue.engines.texts import (
    RANKS,
    Client,
    Row,
    chosen,
    filled_in,
    parts_of,
    sql_text,
    statements_in,
)
from tablequeue.engines.words import Words
from tablequeue.errors import BadName, TablequeueError
from tablequeue.model.definition import Definition
from tablequeue.model.names import check_identifier

# The schemas that statements can name. The other characters would end a name, a literal or a parameter.
_NAMEABLE = re.compile(r"""[^"'`\[\]\\:;{}%\x00-\x1f]+""")
# Characters, or bytes, of a payload that is read in brief.
BRIEF = 8192
# The lists of columns of messages that are read.
READ = ("live_columns", "history_columns", "log_columns")


class EngineBase(Words):
    """One database system: its traits, its SQL, its connections and errors, and its values."""

    name: ClassVar[str]
    """The folder of the engine, and its SQLAlchemy dialect."""
    expressions: ClassVar[Mapping[str, Mapping[str, str]]]
    """The expressions that replace columns in a list of columns; see columns.py."""
    client: ClassVar[Client]
    autocommit: ClassVar[Sequence[Effect]] = (Effect.WRITE, Effect.READ, Effect.UPKEEP)
    """The effects of the operations that need no transaction around them."""
    drivers: ClassVar[tuple[str, ...]]
    """The SQLAlchemy drivers it works through, the preferred one first."""
    async_drivers: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """SQLAlchemy's async drivers that `join_async` supports, the preferred one first.

    Each has the options of its URLs that `drivers[0]` names differently; "" for an option that `drivers[0]` lacks.
    """
    has_servers: ClassVar = True
    """Whether its URLs name a server; else they name a file."""
    connect_args: ClassVar[Mapping[str, Any]] = {}
    """Options of the driver's `connect`. The URL overrides them."""
    schema_version: ClassVar[int] = 1
    """The version of the tables that it creates and works with."""
    has_schemas: ClassVar[bool] = True
    commits_ddl: ClassVar[bool] = False
    """Whether each statement that makes or changes a table commits."""
    errors_abort: ClassVar[bool] = False
    """Whether an error of the database leaves a transaction that can only be rolled back."""
    saves: ClassVar[Literal["none", "several", "all"]] = "none"
    """The operations that need a savepoint in a caller's transaction; `several`: see `Operation`."""
    savepoints_stay: ClassVar[bool] = True
    """Whether a savepoint stays beside a later one of its name, so that it must be released."""
    sweeps_within: ClassVar[bool] = False
    """Whether a claim in a caller's transaction sweeps in that transaction, because no other one could write then."""
    low_water: ClassVar[bool] = False
    """Whether claims begin at a low-water mark; see low_water.py."""
    overlaps: ClassVar[bool] = False
    """Whether a stream claims a batch while the one before is being completed, on two connections."""
    closes_before_fork: ClassVar[bool] = False
    """Whether all connections must be closed before a process forks."""
    looks_apart: ClassVar[bool] = False
    """Whether a caller's transaction may be unable to see what others have committed since it began.

    An operation in it looks on a connection of our own, `cursor.beside`, what it may lock.
    """
    listener: ClassVar[type[Any] | None] = None
    """The class that receives notifications of pushes, see notifier.py; None: waiting consumers poll."""
    procedure_syntax: ClassVar[ProcedureSyntax | None] = None
    """How it writes stored procedures; None: it has none."""

    def __init__(self, dialect: Dialect, schema: str | None = None) -> None:
        self.dialect = dialect
        self.schema = check_identifier(schema, "schema") if schema is not None else None
        self.place = self.schema
        self._settling = Lock()
        self.shared = Statements(self)
        """The statements of the operations that concern no queue."""

    # -- texts ---------------------------------------------------------------------------------------------------

    def render(
        self, operation: str, table: Statements, state: str = "ready", instead: Mapping[str, str] = MappingProxyType({})
    ) -> str:
        """Return the SQL text of an operation, with its header and `:name` parameters.

        instead   values that override those of its `{words}`.
        """
        words = self.words(table, state) if isinstance(table, Table) else self.common_words()
        expressions = self.expressions
        if isinstance(table, Table) and table.brief:
            start = {"payload": f"{self.payload_start(table.definition)} as payload", "headers": "null as headers"}
            expressions = {name: {**expressions[name], **start} for name in READ}
        text = listed(sql_text(self.name, operation), expressions)
        if isinstance(table, Table):
            text = "\n".join(chosen(text, table.plan.met))
        words = {**words, **instead}
        return f"{self.declared(self.filled_in(text, words, table), words)}\n"

    def declared(self, text: str, words: Mapping[str, str]) -> str:
        """Return the text with the declarations of its parameters, if the database has variables for them."""
        return text

    def filled_in(self, text: str, words: Mapping[str, str], table: Statements) -> str:
        """Return the text with its `{words}`, and with the parts that it names."""
        met = table.plan.met if isinstance(table, Table) else set()
        return filled_in(text, words, met, lambda part: listed(parts_of(self.name)[part], self.expressions))

    def plan(self, definition: Definition) -> Plan:
        """Return what a definition decides on this engine."""
        return Plan(conditions(definition, {trait for trait in TRAITS if getattr(self, trait)}))

    def payload_start(self, definition: Definition) -> str:
        """Return the expression of the first `BRIEF` characters of a payload, or bytes; see `expressions`."""
        return f"substr({{}}payload, 1, {BRIEF})"

    def composed(self, operation: str, table: Table) -> list[str]:
        """Return the statements of a printed operation, with `:name` parameters, if Python composes them; else none."""
        return []

    def split(self, text: str) -> list[str]:
        """Split a text into what is sent in one round trip: a statement, or a batch of them."""
        return statements_in(text)

    @abstractmethod
    def compile(self, text: str) -> str:
        """Convert the `:name` parameters of a statement to the driver's own style. It is run with a dict."""

    def table(
        self, name: str, definition: Definition, table_name: str | None = None, topic: Table | None = None
    ) -> Table:
        return Table(self, name, definition, table_name, topic)

    # -- connections and errors ------------------------------------------------------------------------------------

    def settle(self, place: str | None) -> None:
        """Have the statements name this schema from now on, unless they name one already.

        So no setting of a session can make them mean the tables of another one. None: the session has no schema.
        """
        if place is None or self.place is not None:
            return
        if not _NAMEABLE.fullmatch(place):
            raise BadName(
                f"The queues would be in the schema {place!r}, and tablequeue cannot write that name in SQL.",
                "Name another one: connect(..., schema=...).",
            )
        with self._settling:
            self.place = self.place or place

    def identifier(self, name: str) -> str:
        """Return the name of something of the user's as an identifier of SQL, in quotes; `BadName` if it cannot be."""
        if not _NAMEABLE.fullmatch(name):
            raise BadName(
                f"tablequeue cannot write the name {name!r} in SQL.",
                "Give it a name without quotes, brackets, braces, colons, semicolons, backslashes and percent signs.",
            )
        return f"{self.quotes[0]}{name}{self.quotes[1]}"

    def settle_by(self, cursor: Cursor) -> None:
        """Settle on the schema of a caller's session, if no connection of ours has come before."""
        cursor.execute(self.shared.statement("place"))
        self.settle(cursor.fetchone()[0])

    def check_url(self, url: sa.URL) -> None:
        """Refuse a URL to which no connection may be made."""

    def opened(self, sa_engine: sa.Engine) -> None:
        """Note what is needed of the Engine that makes our connections."""

    def connecting(self) -> AbstractContextManager[None]:
        """Bound how long a new connection, made in the block, waits for the server; unless the Engine bounds it."""
        return nullcontext()

    def missing(self) -> str | None:
        """Return the path of a missing database file that a connection would create; else None.

        Raise `Unreachable` if the file could not be created.
        """
        return None

    @abstractmethod
    def adopt(self, dbapi: Any) -> RawConnection:
        """Take over a new DB-API connection: set it to autocommit, with the settings that the promises need."""

    def is_ours(self, cursor: Cursor) -> bool:
        """Return whether the cursor belongs to a connection of our own, not to a caller's."""
        return getattr(cursor, "ours", False)

    @abstractmethod
    def commits_each(self, dbapi: Any) -> bool:
        """Return whether a caller's connection commits each statement: in autocommit, with no transaction open.

        The connection may also be SQLAlchemy's adapter of an async driver.
        """

    @abstractmethod
    def join(self, dbapi: Any) -> Cursor:
        """Return a cursor that yields tuples, in the transaction of a caller's raw connection."""

    def join_async(self, adapted: Any) -> Cursor:
        """`join`, for SQLAlchemy's adapted connection, whose driver is one of `async_drivers`."""
        return self.join(Awaited(adapted, adapted.driver_connection))

    @abstractmethod
    def translate(self, error: Exception) -> TablequeueError | None:
        """Return the driver's error as one of ours; None if it is not an error of the driver."""

    def is_transient(self, error: Exception) -> bool:
        """Return whether the database rolled back our transaction and it can be tried again."""
        return False

    # -- values ----------------------------------------------------------------------------------------------------

    def literal(self, text: str) -> str:
        """Return a text as a literal of SQL, for printed SQL."""
        return "'" + text.replace("'", "''") + "'"

    @abstractmethod
    def dump_time(self, time: datetime) -> Any:
        """Convert an aware time to what the driver takes."""

    @abstractmethod
    def load_time(self, value: Any) -> datetime:
        """Return a time of the driver, or one in the JSON of errors, as an aware time in UTC."""

    @abstractmethod
    def dump_ids(self, ids: Sequence[int]) -> Any:
        """Return a list of ids as one parameter."""

    def dump_delays(self, delays: Mapping[int, float]) -> Any:
        """Return seconds for each id as one parameter, which an operation gets beside the ids in the same order."""
        return str([[id, seconds] for id, seconds in sorted(delays.items())])  # JSON

    def failing(self, delays: Mapping[int, float]) -> Params:
        """Return the parameters for messages that fail, each with its delay. Those of a range have one in common."""
        delay = next(iter(delays.values()))
        return {"ids": self.dump_ids([*delays]), "delays": self.dump_delays(delays), "delay": delay}

    def load_ids(self, ids: Any) -> list[int]:
        """Return the ids of a parameter of `dump_ids`."""
        return [*ids]

    def rank(self, order: str) -> Callable[[Row], Any] | None:
        """Return the key that sorts claimed rows in an order; None: they sort as tuples, by id."""
        return RANKS[order]
