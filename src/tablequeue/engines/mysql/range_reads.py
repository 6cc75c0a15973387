"""What looks at a subscription on MariaDB and MySQL, where a join of intervals may read the whole log."""

from __future__ import annotations

import json

from tablequeue.engines.base import Params, Table
from tablequeue.engines.connection import Cursor
from tablequeue.engines.mysql.pieces import CONDITIONS, Piece, within
from tablequeue.engines.range_reads import RangeReads
from tablequeue.engines.reads import Next
from tablequeue.engines.rows import RangesRow
from tablequeue.engines.texts import Row

# The messages that a range has finished; see create_ranges.sql.
FINISHED = """(
            coalesce(json_length(left_ids), case when finished_at is not null then messages else 0 end)
            - coalesce(json_length(apart_ids), 0)
        )"""
# The ranges, each with the intervals of ids that it has: a row for each.
PIECES = """(
        select
            claimed.id as range_id, messages, consumer, popped_at, lease_until, finished_at, left_ids, apart_ids,
            {finished_messages} as finished, interval_of.low, interval_of.high
        from {ranges} as claimed
        straight_join json_table(
            claimed.pieces, '$[*]' columns (low bigint path '$[0]', high bigint path '$[1]')
        ) as interval_of
    )"""
# The intervals of ids that have offsets, from the position of the subscription on.
UNCLAIMED = """(
        select first_id + greatest(position - first_offset, 0) as low, last_id as high
        from {runs}
        cross join (
            select greatest(
                (select last_offset + 1 from {ranges} order by id desc limit 1),
                (select first_offset + 1 from {runs} order by first_offset limit 1)
            ) as position
        ) as next
        where first_offset + last_id - first_id >= position
    )"""
# The largest id.
LAST_ID = (1 << 63) - 1


class MySQLRangeReads(RangeReads):
    def until_next(self, cursor: Cursor, table: Table, params: Params) -> Next:
        look, find, late = table.statements("range_until_next")
        cursor.execute(look, params)
        ((seconds, paused),) = cursor.fetchall()
        if not paused and (seconds is None or seconds > 0):
            cursor.execute(find)
            if within(cursor, late, cursor.fetchall()):
                seconds = 0
        return Next(seconds, paused)

    def progress(self, cursor: Cursor, table: Table, params: Params) -> RangesRow:
        find, count = table.statements("range_stats")
        cursor.execute(find)
        ((start, end, last_id),) = cursor.fetchall()
        cursor.execute(count, params | {"start": start, "end": end, "last_id": last_id})
        return RangesRow(*cursor.fetchone())

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
        find, runs, holes, first_ids, last_ids = table.statements("range_ready")
        cursor.execute(find)
        ((start, last_id),) = cursor.fetchall()
        cursor.execute(runs, {"start": start})
        pieces: list[Piece] = [(one + max(start - offset, 0), end) for offset, one, end in cursor.fetchall()]
        cursor.execute(holes)
        pieces += [*cursor.fetchall(), (last_id + 1, LAST_ID)]
        wanted = sorted((max(one, low), min(end, high)) for one, end in pieces)
        wanted = [(one, end) for one, end in (wanted[::-1] if last else wanted) if one <= end]
        ids: list[int] = []
        for place in range(0, len(wanted), CONDITIONS):
            part = wanted[place : place + CONDITIONS]
            ids += (row[0] for row in within(cursor, last_ids if last else first_ids, part, {"n": n - len(ids)}))
            if len(ids) >= n:
                break
        return ids
