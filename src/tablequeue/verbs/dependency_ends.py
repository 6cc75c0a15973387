"""The ends of dependencies: looks for messages that wait for nothing any more.

Who finishes a message does nothing for those that wait for it: it would have to lock their rows, or ask whether there
are any. Each sweep of a queue with dependencies looks which rows name messages that have left their queues, deletes
these rows, and makes the messages due that have none left. Each step is one statement, and may be done twice. So a
crash between two of them leaves the rest to the next sweep.
"""

from __future__ import annotations

from datetime import datetime

from tablequeue.engines.base import Params, Table
from tablequeue.engines.dependencies import FAR
from tablequeue.errors import QueueNotFound
from tablequeue.model.definition import Definition
from tablequeue.verbs import catalogue
from tablequeue.verbs.context import Context

# Rows at which one statement of a sweep looks.
ROWS = 1000


def look(context: Context, now: datetime | None) -> int:
    """Make the messages of the queue due that wait for nothing any more. Return how many."""
    dependencies = context.engine.dependencies
    noted = context.run(dependencies.awaited_tables, {})
    if not noted:
        return 0
    others = [table for table in noted if table]  # the others are heads
    there = {catalogue.table_in(row) for row in catalogue.rows(context.runner)} if others else set()
    for other in others:
        if other not in there:
            _forget(context, context.run(dependencies.orphaned_dependencies, {"on_table": other, "n": ROWS}))
            continue
        try:
            _end(context, other, now)
        except QueueNotFound:  # it was dropped meanwhile
            continue
    heads = context.run(dependencies.freed_heads, {"n": ROWS})
    if heads:
        freeing: Params = {
            "ids": context.engine.dump_ids(heads),
            "due": context.time(FAR, "due"),
            "now": context.time(now),
        }
        context.run(dependencies.free_heads, freeing)
        _forget(context, heads)
    return len(heads)


def awaited(context: Context) -> bool:
    """Return whether messages wait for those of the queue."""
    engine = context.engine
    params: Params = {"table": engine.common_words()["dependencies"]}
    has_table = context.runner.run(engine.catalogue.has_table, engine.shared, params)
    return has_table and context.run(engine.dependencies.is_awaited, {})


def _end(context: Context, other: str, now: datetime | None) -> None:
    """Delete the rows about messages of the table `other` that have left it; cancel what a dead letter cancels."""
    ended = context.runner.run(
        context.engine.dependencies.ended_dependencies, _beside(context.table, other), {"on_table": other, "n": ROWS}
    )
    cancelled = sorted({row.message for row in ended if row.cancels})
    if cancelled:
        cancelling: Params = {"ids": context.engine.dump_ids(cancelled), "now": context.time(now)}
        context.run(context.messages.cancel, cancelling)
    _forget(context, [row.id for row in ended])


def _forget(context: Context, rows: list[int]) -> None:
    if rows:
        context.run(context.engine.dependencies.forget_dependencies, {"ids": context.engine.dump_ids(rows)})


def _beside(table: Table, other: str) -> Table:
    """Return the table with the other one as its source. It is kept, with its compiled statements."""
    if other not in table.beside:
        beside = table.engine.table(table.name, table.definition, table.table_name)
        beside.source = table.engine.table(other, Definition(), other)
        table.beside[other] = beside
    return table.beside[other]
