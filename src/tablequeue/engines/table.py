"""The table of a queue on an engine: its names, its statements, and what this process remembers of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from tablequeue.engines.texts import Row, statements_in
from tablequeue.engines.walks import Share, Walks
from tablequeue.model.definition import Definition
from tablequeue.model.names import PART, table_of

if TYPE_CHECKING:
    from tablequeue.engines.base import EngineBase

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True)
class Mark:
    """The low-water mark: the highest id claimed so far. A claim found no ready message at or below it.

    In a grouped queue it is the id of a note, not of a message.
    """

    id: int = 0


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
            compiled = [self.engine.compile(text) for text in self._texts(operation, state)]
            self._compiled[operation, state] = compiled
            return compiled

    def _texts(self, operation: str, state: str) -> list[str]:
        return self.engine.split(self.engine.render(operation, self, state))

    @property
    def used(self) -> list[str]:
        """The names of the texts with statements that have been asked for, each once, in that order."""
        return [*dict.fromkeys(name.partition(".")[0] for name, _ in self._compiled)]

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
        self._bound: dict[Hashable, Any] = {}
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
        self.purges = 1
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
        other._compiled, other._bound = {}, {}  # noqa: SLF001  (a copy of itself)
        return other

    def bound(self, decide: Callable[Concatenate[Table, P], T], *of: P.args, **_: P.kwargs) -> T:
        """Return what `decide` returns for this table and these arguments. It decides once for each definition.

        So an operation asks nothing that the definition has decided: it gets its step, its text or its packet.
        """
        try:
            found: T = self._bound[decide, of]
        except KeyError:
            found = self._bound[decide, of] = decide(self, *of, **_)
        return found

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


class Tables(Statements):
    """The tables of several queues, for a read of all of them in one statement."""

    def __init__(self, engine: EngineBase, all: Sequence[Table]) -> None:
        super().__init__(engine)
        self.all = all

    def _texts(self, operation: str, state: str) -> list[str]:
        reads = []
        for place, table in enumerate(self.all):
            (read,) = statements_in(self.engine.render(operation, table, state))
            reads.append(self.engine.filled_in("{of_many}", {"place": str(place), "read": read}, self))
        return ["\nunion all\n".join(reads)]
