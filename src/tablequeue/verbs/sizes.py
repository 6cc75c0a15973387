"""The sizes on the disk of the tables of queues and topics."""

from __future__ import annotations

from dataclasses import dataclass

from tablequeue.engines.runner import Runner
from tablequeue.engines.table import Table
from tablequeue.model.definition import table_in
from tablequeue.model.names import HISTORY, PART
from tablequeue.verbs import catalogue
from tablequeue.verbs.stats import Stats

# How the names of all tables begin.
STEM = "tq_"
DAY = 86400
# Finished messages from which the mean size of one tells anything: a table with fewer is mostly empty pages.
ENOUGH = 1000


@dataclass(frozen=True, slots=True)
class TableSize:
    """A table of a queue, a topic or a subscription; on SQLite the file of all of them.

    `queue` is None for tables of the whole database. `rows` and `dead`, the rows that were deleted or replaced and take
    space until they are cleaned up, are estimates of the server; None if it has none.
    """

    table: str
    queue: str | None
    rows: int | None
    bytes: int
    dead: int | None


def sizes(runner: Runner, table: Table | None = None) -> list[TableSize]:
    """Return the tables of the library, or of one queue, sorted by name; on SQLite the file in both cases.

    Two reads, whatever the number of queues; they lock nothing.
    """
    owners = {table_in(row.entry): row.name for row in catalogue.rows(runner)}
    stem = STEM if table is None else table.table_name
    rows = runner.run(runner.engine.checks.sizes, runner.engine.shared, {"stem": stem}) if owners else []
    found = [TableSize(row.table, _owner(row.table, owners), row.rows, row.bytes, row.dead) for row in sorted(rows)]
    own = [size for size in found if table is not None and size.queue == table.name]
    return own or found


def added_a_day(size: TableSize, stats: Stats) -> int | None:
    """Return about how many bytes finished messages add to a history in a day: an estimate.

    It is the mean size of a message there, with its part of the indexes, at the rate of the statistics' window. What
    the retention deletes is not subtracted. None for another table, and for a history of few messages.
    """
    if not size.table.endswith(HISTORY) or stats.window is None or (stats.finished or 0) < ENOUGH:
        return None
    assert stats.finished
    return round(stats.window.queue.completion_rate * DAY * size.bytes / stats.finished)


# -- private ---------------------------------------------------------------------------------------------------------


def _owner(table: str, owners: dict[str, str]) -> str | None:
    """Return the name of the queue that has a table. The name of a subscription's table begins with its topic's."""
    stem = table.removesuffix(HISTORY)
    while stem not in owners and PART in stem:
        stem = stem.rpartition(PART)[0]
    return owners.get(stem)
