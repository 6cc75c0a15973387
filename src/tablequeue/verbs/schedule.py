"""Schedules of periodic pushes: a row has the time for which each was pushed last, and one of many workers advances it.

A deduplication key could not do that: it is free again when the message of that time is finished.
"""

from __future__ import annotations

from datetime import datetime

from tablequeue.errors import QueueNotFound
from tablequeue.model.connection import Connection
from tablequeue.verbs.context import Context, Params


def state(context: Context, name: str, now: datetime | None) -> tuple[datetime, datetime]:
    """Return when the schedule was last due and pushed, and the database's clock. A new one counts as due now."""
    params: Params = {"name": name, "now": context.time(now)}
    engine = context.engine
    try:
        row = context.run(engine.schedules.schedule_state, params)
    except QueueNotFound:  # the table is not there: this is the first schedule of the database
        context.run(engine.catalogue.create_schedules, params)
        row = None
    if row is None:
        context.run(engine.schedules.enter_schedule, params)
        row = context.run(engine.schedules.schedule_state, params)
        assert row is not None, "it was entered, and none is ever deleted"
    return engine.load_time(row.last_pushed), engine.load_time(row.clock)


def advance(context: Context, name: str, due: datetime, now: datetime | None, connection: Connection | None) -> bool:
    """Whether the schedule was due at `due` and has not been pushed for that: then push, in the same transaction."""
    params: Params = {"name": name, "due": context.time(due, "due"), "now": context.time(now)}
    return context.run(context.engine.schedules.advance_schedule, params, connection)
