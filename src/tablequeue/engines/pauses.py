"""The operations that pause the claims of a queue. Every claim reads the row that `pause` writes."""

from __future__ import annotations

from typing import Any

from tablequeue.engines.connection import Cursor
from tablequeue.engines.params import Params
from tablequeue.engines.parts import Part
from tablequeue.engines.table import Table


class Pauses(Part):
    def pause(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Hand out no message until the time `until`."""
        self._run(cursor, table, "pause", params)

    def resume(self, cursor: Cursor, table: Table, params: Params) -> None:
        """End the pause, if there is one."""
        self._run(cursor, table, "resume", params)

    def paused(self, cursor: Cursor, table: Table, params: Params) -> Any:
        """Return the time until which claims are paused; None if they are not."""
        row = self._row(cursor, table, "paused", params)
        return row and row[0]
