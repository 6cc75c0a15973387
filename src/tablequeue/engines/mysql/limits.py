"""The limits of queues on MariaDB and MySQL, whose claims find the free places before they lock some."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tablequeue.engines.connection import Cursor
from tablequeue.engines.limits import Limits
from tablequeue.engines.mysql.packets import put, sent, stored, without_lock
from tablequeue.engines.mysql.within import DIRTY, conflict, looks, newest
from tablequeue.engines.params import Params
from tablequeue.engines.table import Table

# A claim of n messages looks at 2 n + LOOK places: other claims may lock the first ones.
LOOK = 32


class MySQLLimits(Limits):
    def _granted(self, cursor: Cursor, table: Table, params: Params) -> tuple[int, Any]:
        """Return how many messages the rate allows now, and the time of that now. Its row stays locked.

        Not if it allows none. Then others would wait for nothing.
        """
        lock = table.statement("grant_rate")
        if looks(cursor, table):
            seen = newest(cursor, table, lock, params)
        else:
            cursor.execute(without_lock(lock), params)
            seen = cursor.fetchall()
        if seen[0][0] < 1:
            return 0, seen[0][1]
        return super()._granted(cursor, table, params)

    def _locked_slots(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        """Lock up to `n` free places. Return their numbers."""
        if not looks(cursor, table):
            free = self._rows(cursor, table, "free_slots", {"look": 2 * params["n"] + LOOK})
            return [row[0] for row in self._rows(cursor, table, "lock_slots", params | {"slots": json.dumps(free)})]
        with cursor.beside(_free_slots, table, params) as places:
            free = list(places)
        rows = self._rows(cursor, table, "lock_seen_slots", params | {"slots": json.dumps(free)})
        if not all(seen for _, seen in rows):
            raise conflict()
        return [slot for slot, _ in rows]


def _free_slots(cursor: Cursor, table: Table, params: Params) -> Sequence[Sequence[Any]]:
    """Return the notes in free places, which neither the caller's transaction nor another one has changed."""
    look = 2 * params["n"] + LOOK
    same = without_lock(table.statement("lock_slots"))
    ((notes,),), rows = sent(cursor, {"look": look, "n": look}, [
        stored(table.statement("free_slots"), tq_free="json_arrayagg(json_array(slot, message, token))"),
        "select @tq_free",
        *DIRTY,
        put(same, slots="coalesce(@tq_free, '[]')"),
    ])  # fmt: skip
    unchanged = {slot for (slot,) in rows}
    return [note for note in json.loads(notes or "[]") if note[0] in unchanged]
