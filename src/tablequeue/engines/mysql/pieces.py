"""Pieces of a log: consecutive ids, by which MariaDB and MySQL read its rows."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from tablequeue.engines.base import Params
from tablequeue.engines.connection import Cursor
from tablequeue.engines.texts import Row

# Conditions on ids in one statement. The optimizer needs a time that grows with their square.
CONDITIONS = 100

Piece = tuple[int, int]
"""The first and the last of consecutive ids."""


def within(cursor: Cursor, statement: str, pieces: Sequence[Piece], params: Params | None = None) -> list[Row]:
    """Run a statement whose condition on an id stands for that of each piece. Return its rows.

    Literals, CONDITIONS at a time: for a join with a table of the pieces, the optimizer may read the whole log.
    """
    head, condition, tail = statement.partition("id between %(low)s and %(high)s")
    assert condition, "on an id"
    rows: list[Row] = []
    for start in range(0, len(pieces), CONDITIONS):
        wanted = " or ".join(f"id between {low} and {high}" for low, high in pieces[start : start + CONDITIONS])
        cursor.execute(f"{head}({wanted}){tail}", params or {})
        rows += cursor.fetchall()
    return rows


def ids_in(pieces: Iterable[Piece]) -> list[int]:
    """Return all ids of the pieces, in their order."""
    return [id for low, high in pieces for id in range(low, high + 1)]


def rests(holes: Iterable[Piece], islands: Sequence[Piece]) -> tuple[list[int], list[Piece]]:
    """Return the first ids of the holes that have islands, and what is left of these holes. All are sorted by id."""
    filled: list[int] = []
    left: list[Piece] = []
    place = 0
    for first_id, last_id in holes:
        free = first_id
        while place < len(islands) and islands[place][0] <= last_id:
            low, high = islands[place]
            left.append((free, low - 1))
            free, place = high + 1, place + 1
        if free > first_id:
            filled.append(first_id)
            left.append((free, last_id))
    return filled, [(low, high) for low, high in left if low <= high]


def remaining(held: Row, ids: Sequence[int] | None = None) -> list[int]:
    """Return the messages of a range that have not left it, of `ids` or of all; `held` has id, pieces, left_ids."""
    pieces: list[Piece] = sorted(json.loads(held[1]))
    left = {*json.loads(held[2] or "[]")}
    if ids is None:
        return [id for low, high in pieces for id in range(low, high + 1) if id not in left]
    lows = [low for low, _ in pieces]

    def is_inside(id: int) -> bool:
        place = bisect_right(lows, id) - 1
        return place >= 0 and id <= pieces[place][1]

    return [id for id in ids if id not in left and is_inside(id)]
