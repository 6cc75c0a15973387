"""The operations on progress: what consumers report of the messages that they hold, a row for each claim."""

from __future__ import annotations

from tablequeue.engines.connection import Cursor
from tablequeue.engines.params import Params
from tablequeue.engines.parts import Part
from tablequeue.engines.rows import ProgressRow
from tablequeue.engines.table import Table


class ProgressReports(Part):
    def report_progress(self, cursor: Cursor, table: Table, params: Params) -> bool:
        """Keep the report on the message `id`. Return whether it is in progress under `token`; else nothing is kept."""
        self._run(cursor, table, "report_progress", params)
        return cursor.rowcount > 0

    def reported_progress(self, cursor: Cursor, table: Table, params: Params) -> list[ProgressRow]:
        """Return the last reports of those who hold the messages `ids`."""
        return [*map(ProgressRow._make, self._rows(cursor, table, "reported_progress", params))]

    def forget_progress(self, cursor: Cursor, table: Table, params: Params) -> int:
        """Delete up to `n` reports of claims that are not held any more. Return how many."""
        self._run(cursor, table, "forget_progress", params)
        return cursor.rowcount
