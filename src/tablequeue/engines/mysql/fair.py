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
            waits += [float(row[-1]) for row in _rooms(cursor, table, params, slots)]
            start = slots[-1]
        if not slots or 0 in waits:
            break
    return min(waits, default=None)


def seen_outside(cursor: Cursor, table: Table, params: Params, within: Sequence[Row]) -> list[Any]:
    """Return the messages that `look` saw outside of the caller's transaction, which itself sees those `within`.

    None if the transaction has paused the queue: only it can see that.
    """
    rows: list[Any] = params["seen"].rows if "seen" in params else []
    if rows and not within:
        cursor.execute(table.statement("paused"), params)
        if cursor.fetchall():
            return []
    return rows


def locked(cursor: Cursor, table: Table, params: Params) -> list[Row]:
    """Lock up to `n` messages in the order of the turns: of those that were `seen`, and those that are found."""
    if table.definition.group_limited:
        return _locked_with_room(cursor, table, params)
    more = 1
    while True:
        within = found(cursor, table, params | {"n": params["n"] * more})
        seen = seen_outside(cursor, table, params, within)
        both = in_turn([*{row[0]: row for row in (*seen, *within)}.values()], table.ring.served)
        rows = lock_found(cursor, table, params, both)
        while seen and (passed := _passed(both, rows)):
            # The transaction itself has claimed some of those that were seen: they had no turn.
            both = in_turn([row for row in both if row[0] not in passed], table.ring.served)
            rows = lock_found(cursor, table, params, both)
        if rows or len(within) < params["n"] * more + SPARE:
            return rows
        more *= 8  # others have locked all of them


def _rooms(cursor: Cursor, table: Table, params: Params, slots: Sequence[int]) -> list[Any]:
    cursor.execute(
        table.statement("claim_rooms"), {"removes": False, "now": None} | params | {"slots": json.dumps(slots)}
    )
    return list(cursor.fetchall())


def _with_room(cursor: Cursor, table: Table, params: Params, rows: Sequence[Row]) -> list[Any]:
    """Return (id, claims, room, slot) of the messages that their groups have room for."""
    rooms = {row[0]: row for row in _rooms(cursor, table, params, [*dict.fromkeys(slot for _, slot in rows)])}
    return _within_room([(id, rooms[slot][1], int(rooms[slot][2]), slot) for id, slot in rows])


def _within_room(rows: Sequence[Any]) -> list[Any]:
    """Return the first messages of each group, as many as it has room for."""
    chosen, numbers = [], Counter[int]()
    for row in sorted(rows):
        numbers[row[-1]] += 1
        if numbers[row[-1]] <= row[2]:
            chosen.append(row)
    return sorted(chosen, key=lambda row: (row[-1], row[0]))


def _locked_with_room(cursor: Cursor, table: Table, params: Params) -> list[Row]:
    """Lock up to `n` messages, and the stripes of their groups. Count the claim in these stripes.

    A caller's transaction may not see what others have claimed, and what it has claimed itself only it can see. So it
    looks at both what was `seen` and what it finds itself; of each group that counts whose number of claims is current.
    """
    within = found(cursor, table, params)
    given = [*seen_outside(cursor, table, params, within), *within]
    if not given:
        return []
    cursor.execute(table.statement("lock_stripes"), {"by_group": _groups(given)})
    held = {(slot, claims) for slot, claims, _ in cursor.fetchall()}
    current = {row[0]: row for row in given if (row[-1], row[1]) in held}
    rows = lock_found(cursor, table, params, in_turn(_within_room([*current.values()]), table.ring.served))
    if rows:
        cursor.execute(table.statement("note_stripes"), {"slots": json.dumps([*{row[-1] for row in rows}])})
    return rows


def groups_and_wanted(table: Table, rows: Sequence[Row]) -> tuple[str, str]:
    """Return the groups of the rows for `lock_stripes`, and the messages that have room, in the order of the turns."""
    wanted = in_turn(_within_room(rows), table.ring.served)
    return _groups(rows), json.dumps([[row[0], row[-1]] for row in wanted])


def _groups(rows: Sequence[Row]) -> str:
    groups = {(row[-1], row[1]): row[2] for row in rows}
    return json.dumps([[slot, claims, room] for (slot, claims), room in sorted(groups.items())])


def lock_found(cursor: Cursor, table: Table, params: Params, given: Sequence[Row]) -> list[Row]:
    """Lock up to `n` of the messages that were found, in their order. Return them as CLAIMED."""
    values = {"lease": None} | params | {"ids": str([row[0] for row in given])}
    cursor.execute(table.statement("claim_find.read"), values)
    return list(cursor.fetchall())


def _passed(given: Sequence[Row], rows: Sequence[Row]) -> set[int]:
    """Return the ids that were passed over: those before the last one that was locked."""
    got = {row[0] for row in rows}
    places = [place for place, row in enumerate(given) if row[0] in got]
    return {row[0] for row in given[: max(places, default=0)]} - got


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
