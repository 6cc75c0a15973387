"""The base of an engine: the traits of a database system, its SQL, connections, errors and values; a queue's table.

The operations are in the parts of an `Engine`: see engine.py. Over 400 lines, because an engine makes its tables
and a table calls its engine, and two modules must not import each other.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

from tablequeue.engines.awaited import Awaited
from tablequeue.engines.columns import listed
from tablequeue.engines.conditions import conditions
from tablequeue.engines.connection import Cursor, RawConnection
from tablequeue.engines.params import Params as Params
from tablequeue.engines.plan import Plan
from tablequeue.engines.texts import (
    RANKS,
    Client,
    Row,
    chosen,
    filled_in,
    parts_of,
    ready_states,
    sql_text,
    statements_in,
)
from tablequeue.engines.walks import Share, Walks
from tablequeue.errors import TablequeueError
from tablequeue.model.definition import Definition
from tablequeue.model.message import ERROR_ENDS, FIRST_ERRORS, LAST_ERRORS, LONGEST_ERROR, MOST_ERRORS
from tablequeue.model.names import CATALOGUE, HISTORY, MOVING, PART, check_identifier, table_of
from tablequeue.model.states import HEAD_STATES, STATES, WAITING_STATES

STRIPES = 1024
"""The rows that claims of groups with limits lock: those of a group lock the row of its slot modulo this number."""
# Characters, or bytes, of a payload that is read in brief.
BRIEF = 8192
# The lists of columns of messages that are read.
READ = ("live_columns", "history_columns", "log_columns")
# Groups at which `until_next` looks: to look at all of them would cost a waiting consumer too much.
LOOKED_AT = 1000


@dataclass(slots=True)
class Mark:
    """The low-water mark: the highest id claimed so far. A claim found no ready message at or below it.

    In a grouped queue it is the id of a note, not of a message.
    """

    id: int = 0


# The words of `expiry_words`, of a queue whose messages do not expire.
NO_EXPIRY = dict.fromkeys("expires expires_at lifetime until own_until in_time no_expiry".split(), "")


@dataclass(slots=True)
class Ring:
    """What a process remembers of a fair queue, whose groups take their turns in the order of their slots."""

    served: Any = None
    """The slot of the group that was served last; None: no claim yet."""
    marks: dict[Any, int] = field(default_factory=dict)
    """The low-water marks of the groups that were served last; see `Mark`."""
    alone: Any = None
    """The slot of the group of which the last claim had all of its messages; None if it had some of several, or few."""
    claims: int = 0
    """How many claims in a row had all of their messages of that group."""
    looks: Share = field(default_factory=Share)
    """When a claim may look whether the group is alone."""


def ending(message: str, queue: str) -> str:
    """Return the batch of a completed message if no other message of it is ready, so that it may end; else null.

    It looks at the newest ready message: the entries of the others in the index may be of claimed ones.
    """
    return (
        f"case when {message}.batch_id is not null and (\n"  # noqa: S608  (checked names)
        f"    select other.id from {queue} as other\n"
        f"    where other.batch_id = {message}.batch_id and other.state = 'ready'\n"
        f"    order by other.id desc limit 1\n"
        f") is null then {message}.batch_id end"
    )


class Statements:
    """The compiled statements of an engine, for the operations that concern no queue."""

    def __init__(self, engine: EngineBase) -> None:
        self.engine = engine
        self._compiled: dict[tuple[str, str], list[str]] = {}

    def statements(self, operation: str, state: str = "ready") -> list[str]:
        """Return the statements of an operation, compiled for the driver. Each is compiled once.

        `state` is written into the text as a literal: a partial index serves `state = 'ready'`, never `state = ?`.
        """
        try:
            return self._compiled[operation, state]
        except KeyError:
            texts = self.engine.split(self.engine.render(operation, self, state))
            compiled = [self.engine.compile(text) for text in texts]
            self._compiled[operation, state] = compiled
            return compiled

    def statement(self, operation: str, state: str = "ready") -> str:
        """Return the statement of an operation that has exactly one on this engine."""
        (statement,) = self.statements(operation, state)
        return statement


class Table(Statements):
    """One queue's table on an engine: its names, its compiled statements, and what this process remembers of it."""

    def __init__(
        self,
        engine: EngineBase,
        name: str,
        definition: Definition,
        table_name: str | None = None,
        topic: Table | None = None,
    ) -> None:
        super().__init__(engine)
        self.name = name
        self.table_name = table_name or table_of(name, definition.kind)
        self.topic = topic
        """The table of the topic, if this is the table of a subscription."""
        self.source: Table | None = None
        """The table from which messages are moved into this one."""
        self.beside: dict[str, Table] = {}
        """Copies of this table with others as their `source`, by the names of these; see verbs/dependency_ends.py."""
        self.detached_ready = True
        """Of a subscription: whether a detached message may be ready, so that a claim looks for one first."""
        self.position = 0
        """Of a subscription: a guess of the offset at which its next claim begins, on an engine that needs one."""
        self.brief = False
        """Whether its statements read messages in brief; see `in_brief`."""
        self.of_results = False
        """Whether those who attend it wait for results, and not for messages; see `waiting_for_results`."""
        self.definition = definition
        self.plan = engine.plan(definition)
        self.dead_letters: Table | None = None
        """The table of the queue to which dead letters move, if the definition names one."""
        if definition.dead_letter_to is not None:
            # Until the catalogue has told: see verbs/dead_letters.py.
            self.dead_letters = engine.table(definition.dead_letter_to, Definition(payload=definition.payload))
        self._rank = engine.rank(definition.arrangement)
        # The times, on this process's monotonic clock, of the next sweep and of the next purge of a history that has a
        # retention; see verbs/sweep.py. Of a topic: the next look at all holes, and the next try to close some.
        self.next_sweep = 0.0
        self.next_purge = 0.0
        self.next_close = 0.0
        self.ending: set[int] = set()
        """Batches that completions of this process may have ended; see verbs/batch_ends.py."""
        self.has_progress = False
        """Whether the table of reported progress is known to be there; see verbs/progress.py."""
        self.next_forget = 0.0
        """When this process deletes old reports of progress next, on its monotonic clock."""
        self.next_batch = 0
        """The open batch after which this process looks next."""
        self.notifies_apart = False
        """Whether to notify consumers from a connection of our own, after a push in a caller's transaction."""
        self.mark = Mark()
        self.walks = Walks()
        self.ring = Ring()
        self.passed: tuple[str, ...] = ()
        """The groups that this process claimed open runs of in this round; see verbs/claim.py."""

    def redefined(self, definition: Definition, name: str | None = None, dead_letters: Table | None = None) -> Self:
        """Return the table with another definition, or name, and with all else that this process remembers of it.

        dead_letters   the table to which dead letters move, if the definition names another queue than before.
        """
        other = self._copied()
        other.name = name or self.name
        other.definition, other.plan = definition, self.engine.plan(definition)
        if definition.dead_letter_to != self.definition.dead_letter_to:
            other.dead_letters = dead_letters
        other.walks = Walks()
        return other

    def in_brief(self) -> Self:
        """Return the table for reads of the start of each payload, of `BRIEF` characters or bytes, and of no headers.

        For lists of messages, whose payloads together may be larger than the memory.
        """
        other = self._copied()
        other.brief = True
        return other

    def _copied(self) -> Self:
        other = copy(self)
        other._compiled = {}  # noqa: SLF001  (a copy of itself)
        return other

    def in_order(self, rows: Iterable[Row]) -> list[Row]:
        """Return claimed rows in the order of the queue: the database may return them in any."""
        rank: Any = self._rank  # None: as tuples, by id
        return sorted(rows, key=rank)

    def is_that_of(self, other: Table) -> bool:
        """Whether it is the table of the same queue. The name of a dropped table is given to no other one."""
        return self.table_name == other.table_name

    def ready_after(self, id: int) -> None:
        """Lower the mark to `id`, because messages after it may have become ready.

        The mark is replaced, not changed: a claim under way raises the mark that it began with. If it were the same
        one, a claim in another thread could undo this before the next claim.
        """
        self.mark = Mark(min(self.mark.id, id))
        self.ring.marks = {}

    def forget_marks(self) -> bool:
        """Have the next claim, sweep and look begin at the start of their indexes; return whether any would not."""
        marked = self.walks.marked
        self.walks = Walks()
        self.ready_after(0)
        return marked

    @property
    def lowest(self) -> int:
        """The id above which a claim begins that found too little above the mark, or that comes after a sweep."""
        return 0 if self.walks.claims.allows else self.walks.late_ids

    @cached_property
    def waiting_for_results(self) -> Table:
        """The table as the notifier knows it, with a channel of its own, for those who wait for results."""
        table = self.engine.table(self.name, self.definition, f"{self.table_name}{PART}results")
        table.of_results = True
        return table

    @property
    def channel(self) -> str:
        """The name under which consumers wait: one push to a topic notifies those of all its subscriptions."""
        return self.table_name if self.topic is None else self.topic.table_name

    @property
    def entry(self) -> str:
        """The queue's entry in the catalogue: its definition and the name of its table, as JSON."""
        return json.dumps({**self.definition.to_dict(), "table": self.table_name}, sort_keys=True)


class ProcedureSyntax(NamedTuple):
    """How an engine writes its stored procedures; see procedures.py."""

    parameter: str
    """The name of a parameter, `{}` in the operations."""
    role: Callable[[str], str]
    """Return the name of a role quoted for SQL. Raise `BadInput` if it is not a valid name."""
    schema: str | None = None
    """The schema in the printed text if none is named; None: the current schema of the connection."""
    current_schema: str = ""
    """The query for the current schema of the connection, if `schema` is not None."""
    head: str = ""
    """The text before the procedures of a queue."""
    foot: str = ""
    """The text after them."""
    kinds: tuple[str, ...] = ("queue",)
    """The kinds of definitions that have procedures."""
    lacks: tuple[str, ...] = ()
    """The features whose queues have no procedures."""
    dropped_first: tuple[str, ...] = ()
    """The dialects that cannot replace a procedure: it is dropped first, and the rights on it are lost."""
    words: Mapping[str, str] = MappingProxyType({})
    """The `{words}` of the texts that stand for something else in procedures."""
    there: str = ""
    """The query for names of existing procedures of a queue."""
    kept: Callable[[str, str], str] = lambda statement, target: statement
    """Return a statement whose rows go into a variable of the procedure; see `into=` in procedures.py."""


class EngineBase(ABC):
    """One database system: its traits, its SQL, its connections and errors, and its values."""

    name: ClassVar[str]
    """The folder of the engine, and its SQLAlchemy dialect."""
    ready_index: ClassVar[Mapping[str, str]]
    """The columns of the index that serves a claim, for each order of a queue, as in `ORDER BY`."""
    order_by: ClassVar[Mapping[str, str]]
    """The `ORDER BY` of a claim, for each order."""
    slot: ClassVar[str]
    """The slot of the group of a message, in a fair queue: an expression, or a column of its table."""
    payload_types: ClassVar[Mapping[str, str]]
    """The column type of each payload type."""
    staged_types: ClassVar[Mapping[str, str]]
    """The column type of each payload type in the table of staged messages."""
    expressions: ClassVar[Mapping[str, Mapping[str, str]]]
    """The expressions that replace columns in a list of columns; see columns.py."""
    own_clock: ClassVar[str]
    """The database's clock as an SQL expression."""
    clock: ClassVar[str]
    """`own_clock`, unless `:now` is given."""
    places: ClassVar[str] = f"select count(*) from {{}}{PART}slots where slot > 0"  # noqa: S608
    """The number of messages that may be in progress in a queue that limits them."""
    until_token: ClassVar[str]
    """The seconds until the rate of a queue allows a message, in the row of the rate."""
    client: ClassVar[Client]
    autocommit: ClassVar[frozenset[str]]
    """The operations that need no transaction around them; see operations.py."""
    drivers: ClassVar[tuple[str, ...]]
    """The SQLAlchemy drivers it works through, the preferred one first."""
    async_drivers: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """SQLAlchemy's async drivers that `join_async` supports, the preferred one first.

    Each has the options of its URLs that `drivers[0]` names differently; "" for an option that `drivers[0]` lacks.
    """
    connect_args: ClassVar[Mapping[str, Any]] = {}
    """Options of the driver's `connect`. The URL overrides them."""
    schema_version: ClassVar[int] = 8
    """The version of the tables that it creates and works with."""
    has_schemas: ClassVar[bool] = True
    commits_ddl: ClassVar[bool] = False
    """Whether each statement that makes or changes a table commits."""
    no_group: ClassVar[str] = "''"
    """The group of the messages of a strict queue, in SQL."""
    promotes: ClassVar[bool] = True
    """Whether a grouped queue needs `promote`; else triggers of the database promote at once."""
    sweeps_within: ClassVar[bool] = False
    """Whether a claim in a caller's transaction sweeps in that transaction, because no other one could write then."""
    batch_parameter: ClassVar[str] = ":batch_id"
    """The batch of a message that is pushed."""
    completed: ClassVar[str] = ""
    """What the completed messages are called in the texts that complete; empty: as the queue."""
    low_water: ClassVar[bool] = False
    """Whether claims begin at a low-water mark; see low_water.py."""
    closes_before_fork: ClassVar[bool] = False
    """Whether all connections must be closed before a process forks."""
    looks_apart: ClassVar[bool] = False
    """Whether a caller's transaction may be unable to see what others have committed since it began.

    A claim in it first looks for messages on a connection of our own, and then claims them in the transaction.
    """
    listener: ClassVar[type[Any] | None] = None
    """The class that receives notifications of pushes, see notifier.py; None: waiting consumers poll."""
    procedure_syntax: ClassVar[ProcedureSyntax | None] = None
    """How it writes stored procedures; None: it has none."""

    def __init__(self, dialect: Dialect, schema: str | None = None) -> None:
        self.dialect = dialect
        self.schema = check_identifier(schema, "schema") if schema is not None else None
        self.prefix = f"{schema}." if schema else ""
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
        return f"{self.filled_in(text, {**words, **instead}, table)}\n"

    def filled_in(self, text: str, words: Mapping[str, str], table: Statements) -> str:
        """Return the text with its `{words}`, and with the parts that it names."""
        met = table.plan.met if isinstance(table, Table) else set()
        return filled_in(text, words, met, lambda part: listed(parts_of(self.name)[part], self.expressions))

    def plan(self, definition: Definition) -> Plan:
        """Return what a definition decides on this engine."""
        return Plan(conditions(definition, {trait for trait in ("promotes", "low_water") if getattr(self, trait)}))

    def payload_start(self, definition: Definition) -> str:
        """Return the expression of the first `BRIEF` characters of a payload, or bytes; see `expressions`."""
        return f"substr({{}}payload, 1, {BRIEF})"

    def common_words(self) -> dict[str, str]:
        """Return the `{words}` of the texts that concern no queue."""
        return {
            "schema": self.schema or "",
            "prefix": self.prefix,
            "catalogue": f"{self.prefix}{CATALOGUE}",
            "schedules": f"{self.prefix}tq{PART}schedules",
            "paused": f"{self.prefix}tq{PART}paused",
            "dropped": f"{self.prefix}tq{PART}dropped",
            "dependencies": f"{self.prefix}tq{PART}dependencies",
            "batches": f"{self.prefix}tq{PART}batches",
            "batch_counts": f"{self.prefix}tq{PART}batch_counts",
            "task_results": f"{self.prefix}tq{PART}task_results",
            "chords": f"{self.prefix}tq{PART}chords",
            "chord_parts": f"{self.prefix}tq{PART}chord_parts",
            "now": self.clock,
        }

    def words(self, table: Table, state: str = "ready") -> dict[str, str]:
        """Return the `{words}` of the texts about a queue. All of them that come from a user have been checked."""
        if state not in STATES:
            raise ValueError(state)
        definition = table.definition
        queue = f"{self.prefix}{table.table_name}"
        expiry = self.expiry_words(definition.expires) if definition.expires else NO_EXPIRY
        unpaused = self.unpaused(table)
        above_mark = " and id > :low_water" if "marked" in table.plan.met else ""
        return {
            **self.common_words(),
            "queue": queue,
            "history": f"{queue}{HISTORY}",
            "table": table.table_name,  # without the schema: the stem of index names
            "payload_type": self.payload_types[definition.payload],
            "turns": f"{queue}{PART}turns",
            "turn": f"{queue}{PART}turn",
            "order_by": self.order_by[definition.arrangement],
            "ready_index": self.ready_index[definition.arrangement],
            "claimable": self.claimable(definition) + f"{above_mark} and {unpaused}" + expiry["in_time"],
            # Of a look for ready messages.
            "above_mark": above_mark,
            "unpaused": unpaused,
            "indexed": ready_states(definition),
            # In a grouped queue a message is blocked until it is promoted.
            "pushed_ready": "blocked" if definition.grouped else "ready",
            "pushed_scheduled": "blocked" if definition.grouped else "scheduled",
            "redriven_due": "due_at" if definition.order == "due" else "null",
            "waiting": f"state in ({', '.join(map(repr, WAITING_STATES))})",
            "head": f"state in ({', '.join(map(repr, HEAD_STATES))})",
            "state": state,
            "states": ", ".join(map(repr, STATES)),
            # In a grouped queue: a message of a run is blocked when it is to be tried again; see `create_groups`.
            "or_blocked": " when in_run <> 0 then 'blocked'" if definition.grouped else "",
            "out_of_run": ",\n    in_run = 0" if definition.grouped else "",
            "out_of_run_if_swept": ",\n    in_run = case when cancelled_at is not null then in_run else 0 end"
            if definition.grouped
            else "",
            # In a grouped queue: a group is noted, so promote may make a message ready.
            "or_noted": f" or exists (select 1 from {queue}{PART}turns)"  # noqa: S608  (checked names)
            if definition.grouped and self.promotes
            else "",
            "streams": f"{queue}{PART}streams",
            "staged": f"{queue}{PART}staged",
            "writers": f"{queue}{PART}writers",
            "moving": f"{queue}{MOVING}",
            "moved": f"{queue}{PART}moved",
            "progress": f"{queue}{PART}progress",
            "slots": f"{queue}{PART}slots",
            "rate": f"{queue}{PART}rate",
            # Of a queue with limits: whether it has a place, the seconds until the rate allows a message, and the
            # numbers for the text that creates it.
            "room": f"(select count(*) from {queue} where state = 'in_progress') < ({self.places.format(queue)})"  # noqa: S608
            if definition.concurrency
            else "1 = 1",
            "until_rate": f"(select {self.until_token} from {queue}{PART}rate)" if definition.rate else "0",  # noqa: S608
            "stripes": f"{queue}{PART}stripes",
            "last_stripe": str(STRIPES - 1),
            "group_rates": f"{queue}{PART}group_rates",
            "per_group": str(definition.per_group or 0),
            "looked_at": str(LOOKED_AT),
            "group_step": str(definition.group_rate.step if definition.group_rate else 0),
            "group_burst": str(definition.group_rate.burst if definition.group_rate else 0),
            # The predicate of a claim without the low-water mark.
            "free": self.claimable(definition) + expiry["in_time"],
            "concurrency": str(definition.concurrency or 0),
            "step": str(definition.rate.step if definition.rate else 0),
            "burst": str(definition.rate.burst if definition.rate else 0),
            "staged_type": self.staged_types[definition.payload],
            # What is moved here keeps its due time; a due queue needs one, as a push has it.
            "source": f"{self.prefix}{table.source.table_name if table.source else 'tq_other'}",
            "moved_due": "coalesce(due_at, pushed_at)" if definition.order == "due" else "due_at",
            "moved_group": "group_key" if definition.groups else self.no_group if definition.strict else "null",
            "default_due": self.clock if definition.order == "due" else "null",
            # In a grouped queue for dead letters, a message is blocked until it is promoted.
            "moved_dead": "blocked" if table.dead_letters and table.dead_letters.definition.grouped else "ready",
            # The table to which dead letters move, if the definition names a queue for them.
            "target": f"{self.prefix}{(table.dead_letters or table).table_name}",
            # How many errors of a message stay: the first ones, and the last ones, of which one is new.
            "most_errors": str(MOST_ERRORS),
            "first_errors": str(FIRST_ERRORS),
            "last_errors": str(LAST_ERRORS - 1),
            "longest_error": str(LONGEST_ERROR),
            "error_ends": str(ERROR_ENDS),
            "slot": self.slot,
            "and_slot": f", {self.slot} as slot" if definition.fair else "",
            "and_null": ", null" if definition.fair else "",
            "ring": f"{queue}{PART}ring",
            "keys": f"{queue}{PART}keys",
            "results": f"{queue}{PART}results",
            "unique_for": repr(definition.unique_for),
            # The columns of a push that only some queues have. Of a queue with batches: the value of a push, and what a
            # completion returns besides.
            "extra": expiry["expires_at"] + (", batch_id" if definition.batches else ""),
            "in_batch": f", {self.batch_parameter}" if definition.batches else "",
            "ending": f", {ending(self.completed or queue, queue)} as ending" if definition.batches else "",
            **expiry,
            **self.topic_words(table),
        }

    def expiry_words(self, expires: float) -> dict[str, str]:
        """Return the `{words}` of the texts about a queue whose messages expire.

        expires   the seconds of a message that is pushed without seconds of its own.
        """
        given = {":expires": "until", "expires": "own_until"}
        return {
            "expires": repr(expires),
            "expires_at": ", expires_at",
            "lifetime": ", expires",
            **{word: f", {self.after(f'coalesce({seconds}, {expires!r})')}" for seconds, word in given.items()},
            "no_expiry": ", expires_at = null",
            "in_time": f" and (expires_at is null or expires_at > {self.clock})",
        }

    def topic_words(self, table: Table) -> dict[str, str]:
        """Return the `{words}` of the texts about a topic, or about one of its subscriptions."""
        log = f"{self.prefix}{(table.topic or table).table_name}"
        return {
            "log": log,
            "runs": f"{log}{PART}runs",
            "holes": f"{log}{PART}holes",
            "ranges": f"{self.prefix}{table.table_name}{PART}ranges",
        }

    @abstractmethod
    def after(self, seconds: str) -> str:
        """Return SQL for the time so many seconds, an expression of SQL, after `{now}`."""

    def claimable(self, definition: Definition) -> str:
        """Return the predicate of a claim, without the low-water mark."""
        states = ready_states(definition)
        return f"{states} and due_at <= {self.clock}" if definition.order == "due" else states

    def unpaused(self, table: Table, moment: str | None = None) -> str:
        """Return the predicate that claims of the queue are not paused. A claim tests it once."""
        paused = self.common_words()["paused"]
        return (
            f"not exists (select 1 from {paused} where name = '{table.table_name}' "  # noqa: S608  (checked names)
            f"and until > {moment or self.clock})"
        )

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

    def check_url(self, url: sa.URL) -> None:  # noqa: B027 (most engines refuse nothing)
        """Refuse a URL to which no connection may be made."""

    def opened(self, sa_engine: sa.Engine) -> None:  # noqa: B027 (most engines need nothing of it)
        """Note what is needed of the Engine that makes our connections."""

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
