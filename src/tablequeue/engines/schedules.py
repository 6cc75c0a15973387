"""The operations of periodic pushes. A row for each schedule makes sure that each due time is pushed once."""

from __future__ import annotations

from tablequeue.engines.connection import Cursor
from tablequeue.engines.params import Params
from tablequeue.engines.parts import Part
from tablequeue.engines.rows import ScheduleRow
from tablequeue.engines.table import Statements, Table
from tablequeue.engines.texts import Row


class Schedules(Part):
    def enter_schedule(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Insert the schedule `name`, as if it had been due now; or change its expression, as from now."""
        self._run(cursor, table, "enter_schedule", params)

    def schedule_state(self, cursor: Cursor, table: Table, params: Params) -> ScheduleRow | None:
        """Return the schedule `name`; None if it does not exist."""
        row = self._row(cursor, table, "schedule_state", params)
        return row and ScheduleRow(*row)

    def schedules(self, cursor: Cursor, table: Statements, params: Params) -> list[Row]:
        """Return the name, the entry and the last due time of each schedule, sorted by name."""
        return self._rows(cursor, table, "schedules", params)

    def rerun_schedule(self, cursor: Cursor, table: Statements, params: Params) -> None:
        """Set the last due time of the schedule `name` back to `due`."""
        self._run(cursor, table, "rerun_schedule", params)

    def advance_schedule(self, cursor: Cursor, table: Table, params: Params) -> bool:
        """Mark the schedule as pushed for `due`. Return whether this call did; then the caller must push."""
        self._run(cursor, table, "advance_schedule", params)
        return cursor.rowcount == 1
