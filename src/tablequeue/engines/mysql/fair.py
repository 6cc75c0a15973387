"""Claims that take one message of each group in turn, on MariaDB and MySQL.

Neither serves a range whose bound is a column of another row by an index: a recursive query over the groups read
280,000 entries for each step. So each group is a statement of its own.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tablequeue.engines.base import Params, Table
from tablequeue.engines.connection import Cursor
from tablequeue.engines.fair import HIGHEST, STEPS, Fair, in_turn
from tablequeue.engines.texts import Row

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
                table.ring.served = random.choice([*{slot for _, slot in passed}])

    def found(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Return rows of (id, slot) of messages that are ready: `n` in the order of the turns, and some more."""
        self._begin(cursor, table)
        return found(cursor, table, params)

    def _segments(self, table: Table, marks: dict[int, int]) -> Params:
        return {}


def found(cursor: Cursor, table: Table, params: Params) -> list[Row]:
    """Return rows of (id, slot) of ready messages in the order of the turns, without locks: `n` and some more."""
    n = params["n"] + SPARE
    return in_turn(_found(cursor, table, params, n, min(n, LOOK)), table.ring.served)


def locked(cursor: Cursor, table: Table, params: Params) -> list[Row]:
    """Lock up to `n` messages in the order of the turns: of those that were `seen`, and those that are found."""
    seen: Sequence[Row] = params["seen"].rows if "seen" in params else ()
    more = 1
    while True:
        within = found(cursor, table, params | {"n": params["n"] * more})
        both = in_turn([*{row[0]: row for row in (*seen, *within)}.values()], table.ring.served)
        rows = _locked(cursor, table, params, both)
        while seen and (passed := _passed(both, rows)):
            # The transaction itself has claimed some of those that were seen: they had no turn.
            both = in_turn([row for row in both if row[0] not in passed], table.ring.served)
            rows = _locked(cursor, table, params, both)
        if rows or len(within) < params["n"] * more + SPARE:
            return rows
        more *= 8  # others have locked all of them


def _locked(cursor: Cursor, table: Table, params: Params, given: Sequence[Row]) -> list[Row]:
    _, lock = table.statements("claim_find")
    cursor.execute(lock, {"lease": None} | params | {"ids": str([row[0] for row in given])})
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
                rows += some
                seen += len({slot for _, slot in some})
                start = some[-1][1]
            if whole:
                break
    return rows
