"""Claims of a queue with limits, on engines where such a claim is several statements in a transaction.

The claim locks the row of the rate, then free places. It claims no more messages than these allow, and notes what it
has claimed. See `create_slots` and `create_rate`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence, Set
from typing import Any, ClassVar

from tablequeue.engines.connection import Cursor
from tablequeue.engines.params import Params
from tablequeue.engines.parts import Part
from tablequeue.engines.table import Table
from tablequeue.engines.texts import Row

# What a claim of a queue with limits runs before and after it, on engines where its own text does not do it, each with
# the limit that needs it.
GRANTED = {"grant_rate": "rate", "lock_slots": "concurrency"}
SPENT = {"note_slots": "concurrency", "spend_rate": "rate", "spend_group_rates": "group_rate"}


class Limits(Part):
    counts_places: ClassVar[bool] = False
    """Whether the text of a claim limits the messages in progress by itself."""

    def claim_within(
        self,
        cursor: Cursor,
        table: Table,
        params: Params,
        claim: Callable[[Params], Sequence[Row]],
        *,
        removes: bool = False,
    ) -> Sequence[Row]:
        """Claim as many messages as the limits of the queue allow, in the transaction that is open.

        claim     claims up to `n` messages. The first column of its rows is the id.
        removes   whether the messages are in progress no more after the claim: then they need no place.
        """
        steps = table.bound(steps_of_limits)
        slots: list[int] | None = None
        if "grant_rate" in steps:
            # All statements use the time by which the rate was measured.
            tokens, now = self._granted(cursor, table, params)
            params = params | {"n": min(params["n"], tokens), "now": now}
        if "lock_slots" in steps and not (removes or self.counts_places) and params["n"] > 0:
            slots = self._locked_slots(cursor, table, params)
            params = params | {"n": len(slots)}
        rows = claim(params) if params["n"] > 0 else []
        if rows and slots is not None:
            places = json.dumps([{"slot": slot, "message": row[0]} for slot, row in zip(slots, rows, strict=False)])
            self._run(cursor, table, "note_slots", params | {"places": places})
        if rows and "spend_rate" in steps:
            self._run(cursor, table, "spend_rate", params | {"number": len(rows)})
        if rows and "spend_group_rates" in steps:
            numbers = Counter(row[-1] for row in rows).items()
            groups = json.dumps([{"slot": slot, "number": number} for slot, number in numbers], ensure_ascii=False)
            self._run(cursor, table, "spend_group_rates", params | {"by_group": groups})
        return rows

    def _granted(self, cursor: Cursor, table: Table, params: Params) -> tuple[int, Any]:
        """Return how many messages the rate allows now, and the time of that now. Its row stays locked."""
        tokens, now = self._row(cursor, table, "grant_rate", params)
        return int(tokens), now

    def _locked_slots(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        """Lock up to `n` free places. Return their numbers."""
        return [row[0] for row in self._rows(cursor, table, "lock_slots", params)]


def steps_of_limits(table: Table) -> Set[str]:
    """Return which of GRANTED and SPENT a claim of the queue needs."""
    return {step for step, limit in (GRANTED | SPENT).items() if limit in table.plan.met}
