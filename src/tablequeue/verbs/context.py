"""The queue context: what the code behind every verb works with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import monotonic
from typing import Any, TypeVar

from tablequeue.engines import clock
from tablequeue.engines.connection import Cursor
from tablequeue.engines.engine import Engine
from tablequeue.engines.messages import Messages
from tablequeue.engines.params import Params
from tablequeue.engines.plan import Ways
from tablequeue.engines.reads import Reads
from tablequeue.engines.runner import Runner
from tablequeue.engines.table import Table
from tablequeue.errors import BadInput, TablequeueError
from tablequeue.model.connection import Connection
from tablequeue.model.definition import definition_of, table_in
from tablequeue.model.message import checked_id
from tablequeue.model.pacing import LARGEST, LONGEST, Duration, in_seconds
from tablequeue.model.payload import CODECS, Codec

T = TypeVar("T")

# A lease of 100 years from then still ends in a year that Python can write.
LAST_NOW = datetime(9890, 1, 1, tzinfo=UTC)


# The parts of an engine for each kind of table. An ordered subscription keeps all of its messages as a queue does.
PARTS: Ways[Callable[[Engine], tuple[Messages, Reads]]] = Ways(
    {
        "queue": lambda engine: (engine.messages, engine.reads),
        "topic": lambda engine: (engine.topics, engine.reads),
        "ranges": lambda engine: (engine.ranges, engine.range_reads),
        "subscription": lambda engine: (engine.messages, engine.range_reads),
    }
)
# Seconds between two looks of one process at the definition of a queue: an altered one holds within a second.
LOOK_EVERY = 0.75
# The age of the last look, in seconds, from which every call looks again before it goes on.
LOOKED_WITHIN = 1.0


@dataclass(slots=True)
class Context:
    """One queue of one process, for code of the library itself, which gets it by `tablequeue.ext.context_of`.

    Programs use the verbs of `Queue` instead: this may change with any version.
    """

    runner: Runner
    table: Table
    who: str
    """The name under which this process pushes and pops."""
    codec: Codec
    engine: Engine
    messages: Messages
    reads: Reads
    plain: Params | None = None
    """The parameters of a push without options, kept after the first one; see push.py."""
    looked: float = field(default_factory=monotonic)
    """When the last look at the definition began, on the monotonic clock. Opening the queue is the first look."""
    next_look: float = field(default_factory=lambda: monotonic() + LOOK_EVERY)
    """The time from which a call looks again."""

    @classmethod
    def at(cls, runner: Runner, table: Table, who: str) -> Context:
        assert isinstance(table.engine, Engine), "a class of the engine with its operations"
        parts = table.plan.way(PARTS)(table.engine)
        return cls(runner, table, who, CODECS[table.definition.payload], table.engine, *parts)

    def in_brief(self) -> Context:
        """Return a context that reads only the start of each payload, and no headers, for lists of messages.

        A JSON payload that is cut is `Unreadable`, with the start of its text.
        """
        return replace(self, table=self.table.in_brief())

    def run(
        self, operation: Callable[[Cursor, Table, Params], T], params: Params, connection: Connection | None = None
    ) -> T:
        """Run an operation on the queue: in the transaction of the caller's `connection`, or in its own transaction."""
        return self.runner.run(operation, self.table, params, connection)

    def run_beside(
        self, operation: Callable[[Cursor, Table, Params], T], params: Params, connection: Connection | None
    ) -> T:
        """Run an operation in its own transaction, in a call that acts in the caller's transaction."""
        return self.runner.run_beside(operation, self.table, params, connection)

    def run_apart(
        self, operation: Callable[[Cursor, Table, Params], T], params: Params, connection: Connection | None
    ) -> T:
        """Run an operation beside the caller's transaction; within it only if the database has a single writer."""
        run = self.run if self.engine.sweeps_within else self.run_beside
        return run(operation, params, connection)

    def current(self, connection: Connection | None = None) -> Context:
        """Return this context, with the definition and the name that the queue has by now, or had a second ago.

        Each verb begins with it, so that a handle that has been idle does not act on an old definition. It looks if the
        last look is `LOOK_EVERY` seconds old: in constant use that is one small read in that time. In a call with the
        caller's `connection` it looks beside that transaction. If it cannot look, the definition stays as it is.
        """
        now = monotonic()
        if now >= self.next_look:
            # One of several threads looks. The others go on, unless the handle was idle: then its definition is too
            # old.
            self.next_look = self.looked + LOOKED_WITHIN
            self.look(connection)
            self.looked, self.next_look = now, now + LOOK_EVERY
        return self

    def look(self, connection: Connection | None = None) -> None:
        """Look now whether the definition was altered, or the queue renamed."""
        catalogue, shared = self.engine.catalogue, self.engine.shared
        try:
            name = self.table.name
            row = self.runner.run_beside(catalogue.lookup, shared, {"name": name}, connection)
            if self._become(name, row and row.entry, connection):
                return
            for each in self.runner.run_beside(catalogue.names, shared, {}, connection):
                if self._become(each.name, each.entry, connection):  # it was renamed
                    return
        except (TablequeueError, TypeError):
            return  # the database cannot be reached, which the call itself reports; or a newer tablequeue wrote it

    def become(self, table: Table) -> None:
        """Work with another table object from now on: the same queue's, with another definition or name."""
        self.table, self.plain = table, None

    def _become(self, name: str, entry: str | None, connection: Connection | None) -> bool:
        """Work with the definition in a catalogue entry, if the entry is of this table. Return whether it is."""
        if entry is None or table_in(entry) != self.table.table_name:
            return False
        definition, _ = definition_of(entry)
        if definition != self.table.definition or name != self.table.name:
            dead_letters = self._queue_at(definition.dead_letter_to, connection)
            self.become(self.table.redefined(definition, name, dead_letters))
        return True

    def _queue_at(self, name: str | None, connection: Connection | None) -> Table | None:
        """Return the table of the queue to which dead letters move, as the catalogue has it."""
        lookup = self.engine.catalogue.lookup
        row = name and self.runner.run_beside(lookup, self.engine.shared, {"name": name}, connection)
        if not name or not row:
            return None
        return self.engine.table(name, *definition_of(row.entry))

    def time(self, time: datetime | None, what: str = "now") -> Any:
        """Return an aware time as the driver wants it; None, for the database's clock, stays None.

        A clock that a test has moved is not replaced: some operations have parameters that no runner sees.
        """
        if time is None:
            return None if clock.ahead is None or what != "now" else self.engine.dump_time(clock.now())
        if not isinstance(time, datetime) or time.utcoffset() is None:
            raise BadInput(
                f"{what} is {time!r}, which does not say its time zone.",
                "Give an aware datetime, such as datetime.now(UTC).",
            )
        try:
            utc = time.astimezone(UTC)
            if what == "now" and utc > LAST_NOW:
                raise OverflowError
            return self.engine.dump_time(utc)
        except OverflowError:
            last = LAST_NOW.year if what == "now" else 9999
            raise BadInput(
                f"{what} is {time!r}, which in UTC is outside the years 1 to {last}.", "Give a time between them."
            ) from None


def seconds(duration: Duration, what: str) -> float:
    """Return a duration in seconds, if it is from 0 to 100 years; else `BadInput`."""
    value = in_seconds(duration)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= LONGEST:
        raise BadInput(f"{what} is {duration!r}.", "Give seconds, from 0 to 100 years, or a timedelta.")
    return float(value)


def positive(duration: Duration, what: str) -> float:
    """Return a duration in seconds, if it is above 0 and at most 100 years; else `BadInput`."""
    value = seconds(duration, what)
    if not value:
        raise BadInput(f"{what} is {duration!r}.", "Give more than 0 seconds, or a timedelta.")
    return value


def count(number: int, what: str) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= LARGEST:
        raise BadInput(f"{what} is {number!r}.", f"Give a whole number from 1 to {LARGEST}.")
    return number


def checked_ids(ids: Iterable[int]) -> list[int]:
    """Return the ids, if a bigint can hold each; else `BadInput`."""
    if not isinstance(ids, Iterable):
        raise BadInput(f"{ids!r} is no list of ids.", "Give the ids in a list.")
    return [checked_id(id) for id in ids]


__all__ = ["Context", "Params", "checked_ids", "count", "positive", "seconds"]
