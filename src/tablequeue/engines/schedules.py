"""The operations of periodic pushes. A row for each schedule makes sure that each due time is pushed once."""

from __future__ import annotations

from tablequeue.engines.operation import Effect, by_text, changed, none, one, rows
from tablequeue.engines.parts import Part
from tablequeue.engines.rows import ScheduleRow
from tablequeue.engines.table import Statements


class Schedules(Part):
    enter_schedule = by_text(Effect.STEP, none)
    """Insert the schedule `name`, as if it had been due now; or change its expression, as from now."""
    schedule_state = by_text(Effect.STEP, one(ScheduleRow))
    """Return the schedule `name`; None if it does not exist."""
    schedules = by_text(Effect.READ, rows, of=Statements)
    """Return the name, the entry and the last due time of each schedule, sorted by name."""
    rerun_schedule = by_text(Effect.UPKEEP, none, of=Statements)
    """Set the last due time of the schedule `name` back to `due`."""
    advance_schedule = by_text(Effect.STEP, changed)
    """Mark the schedule as pushed for `due`. Return whether this call did; then the caller must push."""
