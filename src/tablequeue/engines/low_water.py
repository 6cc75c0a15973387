"""The low-water mark, for engines whose index keeps dead entries while an old snapshot is open.

Under such a snapshot the index keeps an entry for each message that was ever ready, and a claim walks all of them. On
PostgreSQL 1,800 claims a second fell to 200 within 10,000 messages; with the mark the rate stayed at 2,500. MariaDB
behaves the same. The mark is only a hint. A message may become ready below it: it is released or moved, or its push
commits late. It is found when nothing is ready above the mark, and after a sweep of this process, at the latest a
second later. Where a walk through all entries costs something, walks.py decides when to make one, and what is
found without it.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from tablequeue.engines.connection import Cursor
from tablequeue.engines.params import Params
from tablequeue.engines.table import Mark, Table
from tablequeue.engines.texts import Row
from tablequeue.model.message import ID

Claim = Callable[[Cursor, Table, Params], list[Row]]


def claimed_above(claim: Claim, cursor: Cursor, table: Table, params: Params) -> list[Row]:
    """Claim messages with ids above the mark; if there are none, any messages. Move the mark to the last one."""
    if params["now"] is not None:
        return claimed_anywhere(claim, cursor, table, params)
    mark = table.mark
    rows = _from(mark.id, claim, cursor, table, params)
    if not rows and (lowest := table.lowest) < mark.id:
        rows = _from(lowest, claim, cursor, table, params)
    note_claimed(cursor, table, mark, rows)
    return rows


def claimed_anywhere(claim: Claim, cursor: Cursor, table: Table, params: Params) -> list[Row]:
    """Claim messages, whatever their ids: the queue has no mark, or the time is given."""
    return claim(cursor, table, params | {"low_water": 0})


def note_claimed(cursor: Cursor, table: Table, mark: Mark, rows: list[Row]) -> None:
    """Move the mark with which a claim began to the last row that it claimed."""
    if table.engine.is_ours(cursor):  # a caller's transaction may yet be rolled back
        mark.id = rows[-1][ID] if rows else table.lowest
        table.walks.highest = max(table.walks.highest, mark.id)


def _from(low_water: int, claim: Claim, cursor: Cursor, table: Table, params: Params) -> list[Row]:
    began = monotonic()
    rows = claim(cursor, table, params | {"low_water": low_water})
    table.walks.claims.took(began, len(rows), whole=not low_water)
    return rows
