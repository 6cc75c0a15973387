"""The `{words}` of the SQL texts: names, types, numbers and short expressions, by a queue and its engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from sqlalchemy.engine import Dialect

from tablequeue.engines.table import Table
from tablequeue.engines.texts import ready_states
from tablequeue.model.attempts import ERROR_ENDS, FIRST_ERRORS, LAST_ERRORS, LONGEST_ERROR, MOST_ERRORS
from tablequeue.model.definition import Definition
from tablequeue.model.names import CATALOGUE, HISTORY, MOVING, PART
from tablequeue.model.states import HEAD_STATES, STATES, WAITING_STATES

STRIPES = 1024
"""The rows that claims of groups with limits lock: those of a group lock the row of its slot modulo this number."""
# Groups at which `until_next` looks: to look at all of them would cost a waiting consumer too much.
LOOKED_AT = 1000

# The words of `expiry_words`, of a queue whose messages do not expire.
NO_EXPIRY = dict.fromkeys("expires expires_at lifetime until own_until in_time no_expiry".split(), "")


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


class Words(ABC):
    """What an engine writes for the words of the texts."""

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
    own_clock: ClassVar[str]
    """The database's clock as an SQL expression."""
    clock: ClassVar[str]
    """`own_clock`, unless `:now` is given."""
    places: ClassVar[str] = f"select count(*) from {{}}{PART}slots where slot > 0"  # noqa: S608
    """The number of messages that may be in progress in a queue that limits them."""
    until_token: ClassVar[str]
    """The seconds until the rate of a queue allows a message, in the row of the rate."""
    no_group: ClassVar[str] = "''"
    """The group of the messages of a strict queue, in SQL."""
    promotes: ClassVar[bool] = True
    """Whether a grouped queue needs `promote`; else triggers of the database promote at once."""
    batch_parameter: ClassVar[str] = ":batch_id"
    """The batch of a message that is pushed."""
    completed: ClassVar[str] = ""
    """What the completed messages are called in the texts that complete; empty: as the queue."""
    quotes: ClassVar[str] = '""'
    """What stands before and after a name that needs quotes."""
    reserved: ClassVar[frozenset[str]] = frozenset()
    """The reserved words of the database that SQLAlchemy does not quote."""
    dialect: Dialect
    schema: str | None
    """The schema that the caller named; None: that of the first connection."""
    place: str | None
    """The schema of the tables, once it is known."""

    @property
    def prefix(self) -> str:
        """The schema with a dot, before the name of a table."""
        return f"{self.quoted(self.place)}." if self.place else ""

    def quoted(self, schema: str) -> str:
        """Return the name of a schema as an identifier of SQL: in quotes if it needs any."""
        bare = schema not in self.reserved and self.dialect.identifier_preparer.quote(schema) == schema
        # Not the quotes of SQLAlchemy: those of MariaDB depend on the sql_mode of its first connection.
        return schema if bare else f"{self.quotes[0]}{schema}{self.quotes[1]}"

    def common_words(self) -> dict[str, str]:
        """Return the `{words}` of the texts that concern no queue."""
        return {
            "schema": self.place or "",
            "quoted_schema": self.quoted(self.place) if self.place else "",
            "prefix": self.prefix,
            "catalogue": f"{self.prefix}{CATALOGUE}",
            "schedules": f"{self.prefix}tq{PART}schedules",
            "paused": f"{self.prefix}tq{PART}paused",
            "dropped": f"{self.prefix}tq{PART}dropped",
            "identity": f"{self.prefix}tq{PART}identity",
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
            "heads": f"{queue}{PART}heads",
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
            "ending": f", {ending(self.completed or table.table_name, queue)} as ending" if definition.batches else "",
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
            "log_name": (table.topic or table).table_name,  # without the schema
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
