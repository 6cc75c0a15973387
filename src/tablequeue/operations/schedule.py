"""Schedules of periodic pushes: the last time that each was due and pushed is a row, which one of many advances.

A deduplication key could not say it: it is free again when the message of that time is finished.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tablequeue.errors import QueueNotFound
from tablequeue.operations.desk import Desk


def state(desk: Desk, name: str, now: datetime | None) -> tuple[datetime, datetime]:
    """When the schedule was last due and pushed, and the database's clock; a new one as if it had been due now."""
    params = {"name": name, "now": desk.time(now)}
    run, engine, table = desk.runner.run, desk.engine, desk.table
    try:
        row = run(engine.schedule_state, table, params)
    except QueueNotFound:  # the table is not there: this is the first schedule of the database
        run(engine.create_schedules, table, params)
        row = None
    if row is None:
        run(engine.enter_schedule, table, params)
        row = run(engine.schedule_state, table, params)
        assert row is not None, "it was entered, and nobody deletes one"
    return engine.load_time(row[0]), engine.load_time(row[1])


def advance(desk: Desk, name: str, due: datetime, now: datetime | None, connection: Any) -> bool:
    """Whether the schedule is due at that time and nobody has pushed for it: then push, in the same transaction."""
    params = {"name": name, "due": desk.time(due, "due"), "now": desk.time(now)}
    return desk.runner.run(desk.engine.advance_schedule, desk.table, params, connection)
