"""Pieces: consecutive ids of a topic's log, and statements about several of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tablequeue.engines.connection import Cursor
from tablequeue.engines.params import Params
from tablequeue.engines.texts import Row

# Conditions on ids in one statement. The optimizer needs a time that grows with their square.
CONDITIONS = 100

Piece = tuple[int, int]
"""The first and the last of consecutive ids."""


def within(cursor: Cursor, statement: str, pieces: Sequence[Piece], params: Params | None = None) -> list[Row]:
    """Run a statement whose condition on an id stands for that of each piece. Return its rows."""
    rows: list[Row] = []
    for divided in divided_by(statement, pieces):
        cursor.execute(divided, params or {})
        rows += cursor.fetchall()
    return rows


def divided_by(statement: str, pieces: Sequence[Piece]) -> Iterator[str]:
    """Return statements whose condition on an id is that of each piece.

    Literals, CONDITIONS at a time: for a join with a table of the pieces, the optimizer may read the whole log.
    """
    head, condition, tail = statement.partition("id between %(low)s and %(high)s")
    assert condition, "on an id"
    for start in range(0, len(pieces), CONDITIONS):
        wanted = " or ".join(f"id between {low} and {high}" for low, high in pieces[start : start + CONDITIONS])
        yield f"{head}({wanted}){tail}"


def pieces_of(rows: Iterable[Row]) -> list[Piece]:
    """Return the pieces that rows of a first and a last id are."""
    return [(low, high) for low, high in rows]


def ids_in(pieces: Iterable[Piece]) -> list[int]:
    return [id for low, high in pieces for id in range(low, high + 1)]
