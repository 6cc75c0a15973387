"""Claims of a fair queue: one message of each group that has something ready, then another one of each.

The groups are on a ring, each at its slot, by which the index of the ready messages is arranged. A claim goes on behind
the group that was served last. The process remembers which one that is, so claims share no row and none waits for
another. A process begins with a random one of the groups behind a random slot: the slot alone would favour the groups
that have a large gap before them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from time import monotonic
from typing import Any, ClassVar

from tablequeue.engines.connection import Cursor
from tablequeue.engines.low_water import Claim, claimed_above, claimed_anywhere
from tablequeue.engines.params import Params
from tablequeue.engines.parts import Part
from tablequeue.engines.table import Table
from tablequeue.engines.texts import Row
from tablequeue.model.message import ID

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
# The groups of which a process chooses one to begin with.
STEPS = 32
# The most groups of which a process keeps a low-water mark. Dead index entries cost something where a group has many of
# them, and claims meet those of a group once a round.
MARKS = 64
# The claims in a row that get all of their messages of one group, before the next one asks whether it is alone. Two, so
# that a consumer that takes the only message there is, and then finds none, asks nothing in addition.
ALONE = 2


class Fair(Part):
    asks_alone: ClassVar[bool] = True
    """Whether the engine has `claim_alone`."""

    def in_order(self, table: Table, claim: Claim, *, marked: bool = True) -> Claim:
        """Return how a claim finds the messages whose turn it is: above the low-water mark, if it may be `marked`."""
        if table.definition.fair:
            return partial(self.claimed, claim)
        return partial(claimed_above if marked and "marked" in table.plan.met else claimed_anywhere, claim)

    def claimed(self, claim: Claim, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Claim messages in turn until there are `n`, or no more is ready. Return them in the order of the turns.

        `claim` returns rows with the slot of the group as an additional last column. They may be fewer than are ready
        if some groups have less than their share.
        """
        self._begin(cursor, table)
        ring, rows = table.ring, list[Row]()
        while len(rows) < params["n"]:
            marks = ring.marks if params.get("now") is None else {}
            more = claim(cursor, table, params | {"n": params["n"] - len(rows)} | self._segments(table, marks))
            if more:
                rows += in_turn(more, ring.served)
                ring.served = rows[-1][-1]
                self._served(cursor, table)
                if table.engine.low_water and table.engine.is_ours(cursor):  # else it may yet be rolled back
                    _mark(marks, more)
            elif marks and not rows:
                ring.marks = {}
            else:
                break
        if self.asks_alone and not table.definition.limited:
            _note_alone(table, params["n"], rows)
        return [row[:-1] for row in rows]

    def claimed_alone(self, claim: Claim, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Claim messages of the group that was alone in the last claims, if no other one has anything ready; else none.

        That costs as much as a claim of a queue without groups. Where nobody gives groups, all messages are of one.
        """
        ring = table.ring
        if ring.claims < ALONE or not ring.looks.allows or not table.engine.is_ours(cursor):
            return []
        marks = ring.marks if params.get("now") is None else {}
        began = monotonic()
        rows = claim(cursor, table, {**params, "slot": ring.alone, "after": marks.get(ring.alone, 0)})
        ring.looks.took(began, len(rows), whole=True)
        if len(rows) < params["n"]:
            ring.claims = 0
        elif table.engine.low_water:
            _mark(marks, [(rows[-1][ID], ring.alone)])
        return rows

    def _begin(self, cursor: Cursor, table: Table) -> None:
        """Choose where this process begins."""
        if table.ring.served is None:
            table.ring.served = random.randint(LOWEST, HIGHEST)
            params: Params = {"n": STEPS}
            last = self._row(cursor, table, "claim_ring", params | self._segments(table, {}))
            if last is not None:
                table.ring.served = last[0]

    def _segments(self, table: Table, marks: dict[int, int]) -> Params:
        """Return the segments of the ring, in the order of the turns.

        A segment begins behind a slot and an id, and ends with a slot. The first one begins behind the group that was
        served last, and the last one ends with it. Each mark begins one: so no claim walks the dead index entries
        before it.
        """
        served = table.ring.served
        slots = sorted(marks)
        later = [slot for slot in slots if slot > served]
        earlier = [slot for slot in slots if slot <= served]
        starts = [served, *later, LOWEST, *earlier]
        above = [HIGHEST, *(marks[slot] for slot in later), LOWEST, *(marks[slot] for slot in earlier)]
        ends = [*(slot - 1 for slot in later), HIGHEST, *(slot - 1 for slot in earlier), served]
        return {
            "starts": table.engine.dump_ids(starts),
            "above": table.engine.dump_ids(above),
            "ends": table.engine.dump_ids(ends),
        }

    def _served(self, cursor: Cursor, table: Table) -> None:
        """Remember which group was served last where the process is not what remembers it."""


def in_turn(rows: Sequence[Row], served: Any) -> list[Row]:
    """Return the rows in the order of the turns: the first one of each group, then the second ones, and so on."""
    turns: Counter[Any] = Counter()
    keyed = []
    for row in sorted(rows, key=lambda row: row[ID]):
        turns[row[-1]] += 1
        keyed.append(((turns[row[-1]], row[-1] <= served, row[-1]), row))
    return [row for _, row in sorted(keyed, key=lambda one: one[0])]


def _note_alone(table: Table, n: int, rows: Sequence[Row]) -> None:
    """Note whether a claim of `n` messages had all of them of one group, which another such claim had before."""
    ring, before = table.ring, table.ring.alone
    whole = len(rows) == n and rows[0][-1] == rows[-1][-1] and len({row[-1] for row in rows}) == 1
    ring.alone = rows[0][-1] if whole else None
    ring.claims = (ring.claims + 1 if ring.alone == before else 1) if whole else 0


def _mark(marks: dict[int, int], rows: Sequence[Row]) -> None:
    """Note the highest id of each group among the rows. Forget the groups that were served longest ago."""
    for row in rows:
        marks[row[-1]] = max(row[ID], marks.pop(row[-1], 0))
    for slot in list(marks)[:-MARKS]:
        marks.pop(slot, None)
