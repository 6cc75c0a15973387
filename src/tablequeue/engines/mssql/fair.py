"""Claims that take one message of each group in turn, on SQL Server."""

from __future__ import annotations

import random

from tablequeue.engines.connection import Cursor
from tablequeue.engines.fair import HIGHEST, LOWEST, STEPS, Fair
from tablequeue.engines.low_water import Claim
from tablequeue.engines.params import Params
from tablequeue.engines.table import Table
from tablequeue.engines.texts import Row

# How often a claim chooses messages before it is empty.
TRIES = 3
# A slot of 64 bits. The computed column is persisted, so a claim computes no hash.
SLOT = "cast(substring(hashbytes('MD5', coalesce(group_key, 0x)), 1, 8) as bigint)"


class SQLServerFair(Fair):
    asks_alone = False

    def claimed(self, claim: Claim, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Claim messages in turn, as the base does. Choose again if others claimed all that was chosen.

        The statements that choose share no lock with the one that claims, so such a claim is empty although other
        messages are ready. Where limits apply, what is ready may not be claimed: there it is not repeated.
        """
        for _ in range(TRIES):
            rows = super().claimed(claim, cursor, table, params)
            looked: Params = {"n": 1, "served": table.ring.served, "now": params.get("now")}
            if rows or table.definition.limited or self._row(cursor, table, "claim_ring", looked) is None:
                return rows
        return []

    def _begin(self, cursor: Cursor, table: Table) -> None:
        if table.ring.served is None:
            table.ring.served = random.randint(LOWEST, HIGHEST)
            params: Params = {"n": STEPS, "served": table.ring.served, "now": None}
            last = self._row(cursor, table, "claim_ring", params)
            if last is not None:
                table.ring.served = last[0]

    def _segments(self, table: Table, marks: dict[int, int]) -> Params:
        return {"served": table.ring.served}


def fair_words(table: Table) -> dict[str, str]:
    """Return the `{words}` of the texts of a fair queue."""
    fair = table.definition.fair
    return {
        "slot_of_group": SLOT,
        "slot_of_text": SLOT.replace("group_key", "convert(varbinary(1020), group_key)"),
        "of_inserted": ", inserted.slot" if fair else "",
        "of_deleted": ", deleted.slot" if fair else "",
        "ring_of_session": f"N'tablequeue.{table.table_name}.ring'",
    }
