"""The operations of periodic pushes: what is remembered of each schedule, so that each due time is pushed once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tablequeue.engines.making import Making
from tablequeue.engines.texts import Row

if TYPE_CHECKING:
    from tablequeue.engines.base import Cursor, Params, Table


class Scheduling(Making):
    """The part of an engine that keeps schedules."""

    def create_schedules(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Make the table of the schedules, if it is not there."""
        self._make(cursor, table, "create_schedules", params, "schedules")

    def enter_schedule(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Enter the schedule `name`, if it is not there, as if it had been due now."""
        self._run(cursor, table, "enter_schedule", params)

    def schedule_state(self, cursor: Cursor, table: Table, params: Params) -> Row | None:
        """When it was last due and pushed, and the database's clock; None if it is not there."""
        return self._fetch(cursor, table, "schedule_state", params, cursor.fetchone)

    def advance_schedule(self, cursor: Cursor, table: Table, params: Params) -> bool:
        """Whether it was due at `due`, and has not been pushed for that: then it is ours to push."""
        self._run(cursor, table, "advance_schedule", params)
        return cursor.rowcount == 1
