"""What looks at a subscription on MariaDB and MySQL, where a join of intervals may read the whole log."""

from __future__ import annotations

import json

from tablequeue.engines.connection import Cursor
from tablequeue.engines.mysql.pieces import CONDITIONS, pieces_of, within
from tablequeue.engines.params import Params
from tablequeue.engines.range_reads import RangeReads
from tablequeue.engines.reads import Next
from tablequeue.engines.rows import RangesRow
from tablequeue.engines.table import Table
from tablequeue.engines.texts import Row

# The largest id.
LAST_ID = (1 << 63) - 1


class MySQLRangeReads(RangeReads):
    def until_next(self, cursor: Cursor, table: Table, params: Params) -> Next:
        ((seconds, paused),) = self._rows(cursor, table, "range_until_next.look", params)
        if not paused and (seconds is None or seconds > 0):
            holes = pieces_of(self._rows(cursor, table, "range_until_next.holes", {}))
            if within(cursor, table.statement("range_until_next.late"), holes):
                seconds = 0
        return Next(seconds, paused)

    def progress(self, cursor: Cursor, table: Table, params: Params) -> RangesRow:
        ((start, end, last_id),) = self._rows(cursor, table, "range_stats.position", {})
        values = params | {"start": start, "end": end, "last_id": last_id}
        return RangesRow(*self._row(cursor, table, "range_stats.count", values))

    def peek(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        if params["state"] == "ready":
            ids = self._ready_ids(cursor, table, params["after"] + 1, LAST_ID, params["n"])
            params = params | {"ids": json.dumps(ids)}
        return super().peek(cursor, table, params)

    def live(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        high = LAST_ID if params["high"] is None else params["high"]
        ids = self._ready_ids(cursor, table, params["low"], high, params["n"], last=True)
        return super().live(cursor, table, params | {"ids": json.dumps(ids)})

    def _ready_ids(self, cursor: Cursor, table: Table, low: int, high: int, n: int, last: bool = False) -> list[int]:
        """Return the first `n` ids from `low` to `high`, or the last, of messages in the log that no range has."""
        ((start, last_id),) = self._rows(cursor, table, "range_ready.position", {})
        runs = self._rows(cursor, table, "range_ready.runs", {"start": start})
        holes = pieces_of(self._rows(cursor, table, "range_ready.holes", {}))
        pieces = [*((one + max(start - offset, 0), end) for offset, one, end in runs), *holes, (last_id + 1, LAST_ID)]
        wanted = sorted((max(one, low), min(end, high)) for one, end in pieces)
        wanted = [(one, end) for one, end in (wanted[::-1] if last else wanted) if one <= end]
        read = table.statement(f"range_ready.{'last' if last else 'first'}")
        ids: list[int] = []
        for place in range(0, len(wanted), CONDITIONS):
            part = wanted[place : place + CONDITIONS]
            ids += (row[0] for row in within(cursor, read, part, {"n": n - len(ids)}))
            if len(ids) >= n:
                break
        return ids
