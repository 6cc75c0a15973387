"""Schedules of periodic pushes: each has a row with the due time of its last push, and one of many workers advances it.

A deduplication key could not do that: it is free again when the message of that time is finished.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from tablequeue.engines.connection import Cursor
from tablequeue.engines.table import Table
from tablequeue.errors import QueueNotFound
from tablequeue.model.connection import Connection
from tablequeue.verbs.context import Context, Params


def state(
    context: Context, name: str, cron: str, now: datetime | None, *, entered: bool = False
) -> tuple[datetime, datetime]:
    """Return when the schedule was last due and pushed, and the database's clock.

    A new schedule counts as due now, and so does a schedule with a changed expression; but not if this process has
    `entered` it before: then another version of the program has changed it.
    """
    params: Params = {"name": name, "cron": cron, "now": context.time(now)}
    engine = context.engine
    try:
        row = context.run(engine.schedules.schedule_state, params)
    except QueueNotFound:  # the table is not there: this is the first schedule of the database
        context.run(engine.catalogue.create_schedules, params)
        row = None
    if row is None or (row.cron != cron and not entered):
        context.run(engine.schedules.enter_schedule, params)
        row = context.run(engine.schedules.schedule_state, params)
        assert row is not None, "it was entered, and none is ever deleted"
    return engine.load_time(row.last_pushed), engine.load_time(row.clock)


def push(
    context: Context, name: str, due: datetime, now: datetime | None, push: Callable[[Connection], object]
) -> bool:
    """Call `push` in a new transaction, if the schedule was due at `due` and no worker has pushed it for that time.

    Returns whether it was called. `push` gets the connection of that transaction.
    """

    def pushed(cursor: Cursor, table: Table, params: Params) -> bool:
        if not context.engine.schedules.advance_schedule(cursor, table, params):
            return False
        push(cursor.connection)
        return True

    return context.run(pushed, {"name": name, "due": context.time(due, "due"), "now": context.time(now)})
