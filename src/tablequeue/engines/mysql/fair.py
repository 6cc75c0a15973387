"""Claims that take one message of each group in turn, on MariaDB and MySQL.

Neither serves a range whose bound is a column of another row by an index: a recursive query over the groups read
280,000 entries for each step. So each group is a statement of its own.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tablequeue.engines.connection import Cursor
from tablequeue.engines.fair import HIGHEST, STEPS, Fair, in_turn
from tablequeue.engines.params import Params
from tablequeue.engines.table import Table
from tablequeue.engines.texts import Row
from tablequeue.engines.words import LOOKED_AT

# Messages that a claim of n looks at beside these n, because other claims may have locked some.
SPARE = 8
# The most messages of a group that a claim looks at. If it wants more, it looks again.
LOOK = 64


class MySQLFair(Fair):
    def _begin(self, cursor: Cursor, table: Table) -> None:
        if table.ring.served is None:
            table.ring.served = random.randint(0, HIGHEST)
            passed = _found(cursor, table, {}, STEPS, SPARE)
            if passed:
                table.ring.served = random.choice([*{row[-1] for row in passed}])

    def found(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Return rows of (id, slot) of messages that are ready: `n` in the order of the turns, and some more.

        In a queue with limits for each group they are (id, claims, room, slot): see `claim_rooms`.
        """
        self._begin(cursor, table)
        return found(cursor, table, params)

    def _segments(self, table: Table, marks: dict[int, int]) -> Params:
        return {}


def found(cursor: Cursor, table: Table, params: Params) -> list[Row]:
    """Return rows of (id, slot) of ready messages in the order of the turns, without locks: `n` and some more."""
    n = params["n"] + SPARE
    look = LOOK if table.definition.group_limited else min(n, LOOK)
    return in_turn(_found(cursor, table, params, n, look), table.ring.served)


def until_room(cursor: Cursor, table: Table, params: Params) -> float | None:
    """Return the seconds until one of the first groups that have something ready has room; None if there is none."""
    waits: list[float] = []
    start, find = -1, table.statement("claim_ring")
    while len(waits) < LOOKED_AT:
        values = {"high": None, "starts": start, "ends": HIGHEST, "look": LOOK} | params
        cursor.execute(find, values)
        slots = [*dict.fromkeys(slot for _, slot in cursor.fetchall())]
        if slots:
            waits += [float(row[-1]) for row in rooms_of(cursor, table, params, slots)]
            start = slots[-1]
        if not slots or 0 in waits:
            break
    return min(waits, default=None)


def rooms_of(cursor: Cursor, table: Table, params: Params, slots: Sequence[int]) -> list[Any]:
    """Return (slot, claims, room, seconds) of groups; see `claim_rooms`."""
    cursor.execute(
        table.statement("claim_rooms"), {"removes": False, "now": None} | params | {"slots": json.dumps(slots)}
    )
    return list(cursor.fetchall())


def _with_room(cursor: Cursor, table: Table, params: Params, rows: Sequence[Row]) -> list[Any]:
    """Return (id, claims, room, slot) of the messages that their groups have room for."""
    rooms = {row[0]: row for row in rooms_of(cursor, table, params, [*dict.fromkeys(slot for _, slot in rows)])}
    return within_room([(id, rooms[slot][1], int(rooms[slot][2]), slot) for id, slot in rows])


def within_room(rows: Sequence[Any]) -> list[Any]:
    """Return the first messages of each group, as many as it has room for."""
    chosen, numbers = [], Counter[int]()
    for row in sorted(rows):
        numbers[row[-1]] += 1
        if numbers[row[-1]] <= row[2]:
            chosen.append(row)
    return sorted(chosen, key=lambda row: (row[-1], row[0]))


def groups_and_wanted(table: Table, rows: Sequence[Row]) -> tuple[str, str]:
    """Return the groups of the rows for `lock_stripes`, and the messages that have room, in the order of the turns."""
    wanted = in_turn(within_room(rows), table.ring.served)
    return groups_of(rows), json.dumps([[row[0], row[-1]] for row in wanted])


def groups_of(rows: Sequence[Row]) -> str:
    groups = {(row[-1], row[1]): row[2] for row in rows}
    return json.dumps([[slot, claims, room] for (slot, claims), room in sorted(groups.items())])


def _found(cursor: Cursor, table: Table, params: Params, groups: int, look: int) -> list[Any]:
    """Return (id, slot) of the first messages of up to so many groups, behind the one that was served last."""
    find, served = table.statement("claim_ring"), table.ring.served
    rows: list[Any] = []
    seen = 0
    for start, end in ((served, HIGHEST), (-1, served)):
        while seen < groups:
            cursor.execute(find, {"high": None, "now": None} | params | {"starts": start, "ends": end, "look": look})
            some = list(cursor.fetchall())
            whole = len(some) < look
            if not whole and some[0][1] != some[-1][1]:
                some = [row for row in some if row[1] != some[-1][1]]  # there may be more of the last group
            if some:
                start = some[-1][1]
                if table.definition.group_limited:
                    some = _with_room(cursor, table, params, some)
                rows += some
                seen += len({row[-1] for row in some})
            if whole:
                break
    return rows
