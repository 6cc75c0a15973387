"""The ends of dependencies: looks for messages that wait for nothing any more.

A consumer that finishes a message does nothing for messages that wait for it: it would have to lock their rows, or to
ask whether there are any. Each sweep of a queue with dependencies looks which rows name messages that have left their
queues, deletes these rows, and makes messages due if none of these rows is left for them. Each step is one statement,
and may be done twice. So a crash between two steps leaves the rest to the next sweep. A sweep of a call with a caller's
connection works beside that transaction, or within it if the database has a single writer.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from tablequeue.engines.connection import Cursor
from tablequeue.engines.dependencies import FAR
from tablequeue.engines.engine import Engine
from tablequeue.engines.params import Params
from tablequeue.engines.rows import NameRow
from tablequeue.engines.table import Table
from tablequeue.errors import QueueNotFound
from tablequeue.model.connection import Connection
from tablequeue.model.definition import Definition, table_in
from tablequeue.verbs.context import Context

# Rows at which one statement of a sweep looks.
ROWS = 1000


def look(context: Context, now: datetime | None, connection: Connection | None = None) -> int:
    """Make messages of the queue due when they wait for no other message any more. Return how many."""
    dependencies = context.engine.dependencies
    noted = context.run_apart(dependencies.awaited_tables, {}, connection)
    if not noted:
        return 0
    others = [table for table in noted if table]  # the others are heads
    there = {table_in(row.entry) for row in context.run_apart(_names, {}, connection)} if others else set()
    for other in others:
        if other not in there:
            orphaned: Params = {"on_table": other, "n": ROWS}
            _forget(context, context.run_apart(dependencies.orphaned_dependencies, orphaned, connection), connection)
            continue
        try:
            _end(context, other, now, connection)
        except QueueNotFound:  # it was dropped meanwhile
            continue
    heads = context.run_apart(dependencies.freed_heads, {"n": ROWS}, connection)
    if heads:
        freeing: Params = {
            "ids": context.engine.dump_ids(heads),
            "due": context.time(FAR, "due"),
            "now": context.time(now),
        }
        context.run_apart(dependencies.free_heads, freeing, connection)
        _forget(context, heads, connection)
    return len(heads)


def give_way(context: Context, now: datetime | None, connection: Connection | None = None) -> int:
    """Block the heads of groups that wait for others, if a message before them was redriven; return how many.

    Else the head, which may wait for that redriven message, would hold it up for ever. The queue has ordered groups.
    """
    dependencies, due = context.engine.dependencies, context.time(FAR, "due")
    fronts = context.run_apart(dependencies.waiting_fronts, {"due": due, "n": ROWS}, connection)
    if fronts:
        blocking: Params = {"ids": context.engine.dump_ids(fronts), "due": due}
        context.run_apart(dependencies.block_fronts, blocking, connection)
    return len(fronts)


def awaited(cursor: Cursor, table: Table, _: Params) -> bool:
    """Return whether messages wait for messages of the queue."""
    engine = _engine(table)
    params: Params = {"table": engine.common_words()["dependencies"]}
    there = engine.catalogue.has_table(cursor, engine.shared, params)
    return there and engine.dependencies.is_awaited(cursor, table, {})


def _engine(table: Table) -> Engine:
    assert isinstance(table.engine, Engine), "a class of the engine with its operations"
    return table.engine


def _names(cursor: Cursor, table: Table, params: Params) -> list[NameRow]:
    engine = _engine(table)
    return engine.catalogue.names(cursor, engine.shared, params)


def _end(context: Context, other: str, now: datetime | None, connection: Connection | None) -> None:
    """Delete the rows about messages that have left the table `other`; cancel messages after a dead letter there."""
    beside = replace(context, table=_beside(context.table, other))
    params: Params = {"on_table": other, "due": context.time(FAR, "due"), "n": ROWS}
    ended = beside.run_apart(context.engine.dependencies.ended_dependencies, params, connection)
    cancelled = sorted({row.message for row in ended if row.cancels})
    if cancelled:
        cancelling: Params = {"ids": context.engine.dump_ids(cancelled), "now": context.time(now)}
        context.run_apart(context.messages.cancel, cancelling, connection)
    _forget(context, [row.id for row in ended], connection)


def _forget(context: Context, rows: list[int], connection: Connection | None) -> None:
    if rows:
        params: Params = {"ids": context.engine.dump_ids(rows)}
        context.run_apart(context.engine.dependencies.forget_dependencies, params, connection)


def _beside(table: Table, other: str) -> Table:
    """Return the table with the other one as its source. It is kept, with its compiled statements."""
    if other not in table.beside:
        beside = table.engine.table(table.name, table.definition, table.table_name)
        beside.source = table.engine.table(other, Definition(), other)
        table.beside[other] = beside
    return table.beside[other]
