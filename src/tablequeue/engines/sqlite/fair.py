"""Claims that take one message of each group in turn, on SQLite.

Only one transaction at a time claims anyway. So a row of the database remembers the group that was served last, and the
turns are the same for all processes, however short they live. That row is in the transaction of the claim.
"""

from __future__ import annotations

from tablequeue.engines.connection import Cursor
from tablequeue.engines.fair import Fair
from tablequeue.engines.params import Params
from tablequeue.engines.table import Table

SLOT = "ifnull(group_key, '')"


class SQLiteFair(Fair):
    def _begin(self, cursor: Cursor, table: Table) -> None:
        table.ring.served = self._row(cursor, table, "claim_ring", {})[0]

    def _segments(self, table: Table, marks: dict[int, int]) -> Params:
        return {}

    def _served(self, cursor: Cursor, table: Table) -> None:
        self._run(cursor, table, "move_ring", {"served": table.ring.served})
