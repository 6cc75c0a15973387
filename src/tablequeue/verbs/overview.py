"""The numbers of all queues of a database, for a page that many look at for hours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from tablequeue.engines.params import Params
from tablequeue.engines.rows import FinishedRow, LostRow, NameRow, PushedRow, StatsRow
from tablequeue.engines.runner import Runner
from tablequeue.engines.table import Table, Tables
from tablequeue.engines.texts import Row
from tablequeue.errors import TablequeueError
from tablequeue.model.definition import kind_of
from tablequeue.model.pacing import Duration
from tablequeue.verbs import catalogue
from tablequeue.verbs.context import Context
from tablequeue.verbs.stats import FIRST, Stats, length_of, messages_in, stats, stats_of, window_of

# Queues that are read in one statement. On PostgreSQL it locks each of their tables and indexes, some 12 of a queue,
# and a server has room for 6,400 locks.
AT_ONCE = 50
# Of a `StatsRow`, what the overview does not read: the history, the lag, expired messages and open batches.
UNREAD = (None, None, None, None)


class Found(NamedTuple):
    """The numbers of the queues in order of their names, and of each queue that could not be read the reason."""

    read: list[tuple[Table, Stats]]
    refused: list[tuple[str, TablequeueError]]


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

    def look(self, window: Duration) -> Found:
        length = length_of(window)
        tables, refused = self._tables()
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

    # -- private -----------------------------------------------------------------------------------------------------

    def _tables(self) -> tuple[list[Table], list[tuple[str, TablequeueError]]]:
        """Return the tables of the queues; those that have not changed since the last look have their statements."""
        opened: dict[NameRow, Table] = {}
        refused = []
        for row in catalogue.rows(self._runner):
            if kind_of(json.loads(row.entry)) == "queue":
                try:
                    opened[row] = self._opened.get(row) or catalogue.find(self._runner, row.name, "queue")
                except TablequeueError as error:
                    refused.append((row.name, error))
        if opened.keys() != self._opened.keys():
            self._together = {}
        self._opened = opened
        return [*opened.values()], refused

    def _read(self, tables: Sequence[Table], length: float) -> list[Stats]:
        counts = self._rows("stats", tables)
        paused = self._rows("paused", tables)
        pushed = self._rows("stats_pushed", [*filter(_keeps, tables)], age=length, n=FIRST)
        finished = self._rows("stats_finished", [*filter(_keeps, tables)], age=length, n=FIRST)
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

    def _rows(self, operation: str, tables: Sequence[Table], age: float = 0, n: int = 0) -> dict[Table, list[Row]]:
        """Return the rows of a read for each of the tables."""
        if not tables:
            return {}
        key = tuple(tables)
        if key not in self._together:
            self._together[key] = Tables(self._runner.engine, tables)
        params: Params = {"operation": operation, "now": None, "age": age, "n": n}
        return dict(
            zip(tables, self._runner.run(self._runner.engine.reads.of_many, self._together[key], params), strict=True)
        )

    def _context(self, table: Table) -> Context:
        return Context.at(self._runner, table, self._who)


def _keeps(table: Table) -> bool:
    return table.definition.keeps_history
