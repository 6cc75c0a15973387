"""The operations of periodic pushes: what is remembered of each schedule, so that each due time is pushed once."""

from __future__ import annotations

from tablequeue.engines.base import Params, Table
from tablequeue.engines.connection import Cursor
from tablequeue.engines.parts import Part
from tablequeue.engines.rows import ScheduleRow


class Schedules(Part):
    def enter_schedule(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Enter the schedule `name`, if it is not there, as if it had been due now."""
        self._run(cursor, table, "enter_schedule", params)

    def schedule_state(self, cursor: Cursor, table: Table, params: Params) -> ScheduleRow | None:
        """Return the schedule `name`; None if it is not there."""
        row = self._row(cursor, table, "schedule_state", params)
        return row and ScheduleRow(*row)

    def advance_schedule(self, cursor: Cursor, table: Table, params: Params) -> bool:
        """Whether it was due at `due`, and has not been pushed for that: then it is ours to push."""
        self._run(cursor, table, "advance_schedule", params)
        return cursor.rowcount == 1
