"""The numbers of all queues of a database, for a page that many look at for hours."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from tablequeue.engines.params import Params
from tablequeue.engines.rows import FinishedRow, LostRow, NameRow, PushedRow, StatsRow
from tablequeue.engines.runner import Runner
from tablequeue.engines.table import Table, Tables
from tablequeue.engines.texts import Row
from tablequeue.errors import TablequeueError
from tablequeue.model.definition import Kind, kind_of
from tablequeue.model.pacing import Duration
from tablequeue.verbs import catalogue
from tablequeue.verbs.context import Context
from tablequeue.verbs.schedule import Entry, entries, run_again
from tablequeue.verbs.stats import FIRST, Stats, length_of, messages_in, stats, stats_of, window_of

# Queues that are read in one statement. On PostgreSQL it locks each of their tables and indexes, some 12 of a queue,
# and a server has room for 6,400 locks.
AT_ONCE = 50
# The most sets of queues for which statements are kept: visitors choose a set by the filter.
MOST_KEPT = 50
# The fields of a `StatsRow` that the overview does not read: the history, the lag, expired messages and open batches.
UNREAD = (None, None, None, None)


class Found(NamedTuple):
    """The numbers of the queues in order of their names, and of each queue that could not be read the reason."""

    read: list[tuple[Table, Stats]]
    refused: list[tuple[str, TablequeueError]]


@dataclass(frozen=True, slots=True)
class Holder:
    """A consumer that holds messages, or has finished some in the window: a worker, or any other program that pops.

    held         how many messages of each queue or subscription it holds. All messages of a claimed range of a log
                 count.
    since        when it claimed the first one of them; None if it holds none.
    lease_until  when the last of their leases ends. If it has ended, the consumer has probably died.
    finished     messages of queues that it finished in the window, up to 1,000 of each queue.
    seen         when it last claimed or finished one of these messages.
    """

    who: str
    held: Mapping[str, int]
    since: datetime | None
    lease_until: datetime | None
    finished: int
    seen: datetime


class Overview:
    """Reads all queues of a database, some statements for every fifty of them. One for each process.

    The numbers are those of `stats`, without the numbers of producers and consumers, failed attempts, the history,
    expired messages and batches. A queue with more than 1,000 messages in the window is read by itself.
    """

    def __init__(self, runner: Runner, who: str) -> None:
        self._runner = runner
        self._who = who
        self._opened: dict[NameRow, Table] = {}
        self._together: dict[tuple[Table, ...], Tables] = {}

    def look(self, window: Duration, wanted: Callable[[str], bool] = lambda name: True) -> Found:
        """Read the queues with `wanted` names."""
        length = length_of(window)
        tables, refused = self._tables(wanted, "queue")
        read: list[tuple[Table, Stats]] = []
        for first in range(0, len(tables), AT_ONCE):
            some = tables[first : first + AT_ONCE]
            try:
                read += zip(some, self._read(some, length), strict=True)
            except TablequeueError:  # of one of them, which does not hide the others
                for table in some:
                    try:
                        read.append((table, stats(self._context(table), length, None)))
                    except TablequeueError as error:
                        refused.append((table.name, error))
        return Found(read, refused)

    def holders(self, window: Duration) -> tuple[datetime, list[Holder]]:
        """Return the database's time, and the consumers that hold messages or finished some in the window, by name."""
        length, load = length_of(window), self._runner.engine.load_time
        tables, _ = self._tables(lambda name: True, "queue", "subscription")
        now = self._clock(bool(tables))
        held: defaultdict[str, dict[str, int]] = defaultdict(dict)
        times: defaultdict[str, list[tuple[datetime, datetime, datetime]]] = defaultdict(list)
        finished: defaultdict[str, list[float]] = defaultdict(list)
        for first in range(0, len(tables), AT_ONCE):
            some = tables[first : first + AT_ONCE]
            for table, rows in self._rows("holding", some).items():
                for consumer, number, *moments in rows:
                    who = consumer or ""
                    held[who][table.name] = held[who].get(table.name, 0) + int(number)
                    begun, claimed, ends = map(load, moments)
                    times[who].append((begun, claimed, ends))
            kept = [table for table in some if _keeps(table) and table.definition.kind == "queue"]
            for rows in self._rows("stats_finished", kept, age=length, n=FIRST).values():
                for row in map(FinishedRow._make, rows):
                    finished[row.consumer or ""].append(row.ago)
        found = []
        for who in sorted({*times, *finished}):
            seen = [now - timedelta(seconds=float(ago)) for ago in finished[who]]
            began = min((since for since, _, _ in times[who]), default=None)
            ended = max((lease for _, _, lease in times[who]), default=None)
            seen += [claimed for _, claimed, _ in times[who]]
            found.append(Holder(who, held[who], began, ended, len(finished[who]), max(seen)))
        return now, found

    def schedules(self) -> tuple[datetime, list[Entry]]:
        """Return the database's time, and all schedules that a worker has entered."""
        found = entries(self._runner)
        return self._clock(bool(found)), found

    def run_again(self, schedule: str) -> None:
        """Have the next worker that looks push the message of a schedule."""
        run_again(self._runner, schedule)

    # -- private -----------------------------------------------------------------------------------------------------

    def _tables(
        self, wanted: Callable[[str], bool], *kinds: Kind
    ) -> tuple[list[Table], list[tuple[str, TablequeueError]]]:
        """Return the tables of these kinds. A table that has not changed since the last look keeps its compiled
        statements."""
        opened: dict[NameRow, Table] = {}
        refused = []
        for row in catalogue.rows(self._runner):
            kind = kind_of(json.loads(row.entry))
            try:
                if kind != "topic":
                    opened[row] = self._opened.get(row) or catalogue.find(self._runner, row.name, kind)
            except TablequeueError as error:
                refused += [(row.name, error)] if kind in kinds else []
        if opened.keys() != self._opened.keys():
            self._together = {}
        self._opened = opened
        return [each for each in opened.values() if each.definition.kind in kinds and wanted(each.name)], refused

    def _read(self, tables: Sequence[Table], length: float) -> list[Stats]:
        counts = self._rows("stats", tables)
        paused = self._rows("paused", tables)
        kept = [*filter(_keeps, tables)]
        pushed = self._rows("stats_pushed", kept, age=length, n=FIRST)
        finished = self._rows("stats_finished", kept, age=length, n=FIRST)
        lost: dict[Table, list[Row]] = {}
        losing = [table for table in tables if table.definition.delivery == "at_most_once"]
        for lease in {table.definition.lease for table in losing}:
            lost |= self._rows("stats_lost", [table for table in losing if table.definition.lease == lease], age=lease)
        found = []
        for table in tables:
            gone = [*map(LostRow._make, lost[table])] if table in lost else None
            until = next((self._runner.engine.load_time(time) for (time,) in paused[table]), None)
            window = None
            if _keeps(table):
                new, done = [*map(PushedRow._make, pushed[table])], [*map(FinishedRow._make, finished[table])]
                if messages_in(new) >= FIRST or len(done) >= FIRST:
                    window = stats(self._context(table), length, None).window
                else:
                    window = window_of(length, new, done, None, None, named=False)
            row = StatsRow._make([*counts[table][0], *UNREAD])
            found.append(stats_of(table, row, gone, window, until))
        return found

    def _clock(self, there: bool) -> datetime:
        """Return the database's time; this process's time if the database has no queue yet, and may not exist."""
        engine = self._runner.engine
        read = engine.checks.read_clock
        return engine.load_time(self._runner.run(read, engine.shared, {"now": None})) if there else datetime.now(UTC)

    def _rows(self, operation: str, tables: Sequence[Table], age: float = 0, n: int = 0) -> dict[Table, list[Row]]:
        """Return the rows of a read for each of the tables."""
        if not tables:
            return {}
        key, together = tuple(tables), self._together.get(tuple(tables))
        if together is None:
            if len(self._together) >= MOST_KEPT:
                self._together = {}
            together = self._together[key] = Tables(self._runner.engine, tables)
        params: Params = {"operation": operation, "now": None, "age": age, "n": n}
        return dict(zip(tables, self._runner.run(self._runner.engine.reads.of_many, together, params), strict=True))

    def _context(self, table: Table) -> Context:
        return Context.at(self._runner, table, self._who)


def _keeps(table: Table) -> bool:
    return table.definition.keeps_history
