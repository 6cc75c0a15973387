"""Schedules of periodic pushes: the last time that each was due and pushed is a row, which one of many advances.

A deduplication key could not say it: it is free again when the message of that time is finished.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tablequeue.errors import QueueNotFound
from tablequeue.operations.context import Context, Params


def state(context: Context, name: str, now: datetime | None) -> tuple[datetime, datetime]:
    """When the schedule was last due and pushed, and the database's clock; a new one as if it had been due now."""
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
        assert row is not None, "it was entered, and nobody deletes one"
    return engine.load_time(row.last_pushed), engine.load_time(row.clock)


def advance(context: Context, name: str, due: datetime, now: datetime | None, connection: Any) -> bool:
    """Whether the schedule is due at that time and nobody has pushed for it: then push, in the same transaction."""
    params: Params = {"name": name, "due": context.time(due, "due"), "now": context.time(now)}
    return context.run(context.engine.schedules.advance_schedule, params, connection)
