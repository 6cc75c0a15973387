"""Bulk pushes: rows of VALUES, their ids, and the keys that are already taken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pymysql
from pymysql.constants import ER

from tablequeue.engines.connection import Cursor
from tablequeue.engines.mysql.refusals import number_of
from tablequeue.engines.params import Params
from tablequeue.model.definition import Definition

# Maximum bytes of rows in one statement. Larger statements are not faster.
CHUNK = 1 << 20


def insert(cursor: Cursor, statement: str, chunks: Iterable[Sequence[bytes]], step: int) -> Iterator[int | None]:
    """Insert rows, one statement a chunk, instead of the single row of `statement`.

    Yield their ids; None for a row whose key is taken.
    """
    head = statement.partition("values")[0].encode() + b"values "

    def insert_all(chunk: Sequence[bytes]) -> Iterator[int | None]:
        try:
            cursor.execute(head + b",".join(chunk))
        except pymysql.IntegrityError as error:
            # The statement was rolled back. Insert its halves, to find the taken key in few statements.
            if number_of(error) != ER.DUP_ENTRY:
                raise
            if len(chunk) == 1:
                yield None
            else:
                half = len(chunk) // 2
                yield from insert_all(chunk[:half])
                yield from insert_all(chunk[half:])
            return
        first = cursor.lastrowid
        yield from range(first, first + len(chunk) * step, step)

    for chunk in chunks:
        yield from insert_all(chunk)


def row_values(params: Params, now: datetime, states: tuple[str, str], definition: Definition) -> tuple[Any, ...]:
    """Return the values of a new row, in the order of push_rows.

    `states` are the state of a message that is due now, and of one that is due later.
    """
    due, delay = params["due"], params["delay"]
    if due is None and delay is not None:
        due = now + timedelta(seconds=delay)
    state = states[due is not None and due > now]
    shared = (params["headers"], params["producer"], params["priority"], params["group"], params["key"])
    values: tuple[Any, ...] = (params.get("payload"), *shared, now, due, state)
    if definition.expires is not None:
        own = params["expires"]
        values = (*values, now + timedelta(seconds=definition.expires if own is None else own))
    return (*values, params["batch_id"]) if definition.batches else values


def chunked(rows: Iterable[str]) -> Iterator[list[bytes]]:
    """Yield the rows, encoded as the driver sends them, in chunks of at most CHUNK bytes (at least one row)."""
    chunk: list[bytes] = []
    size = 0
    for row in rows:
        encoded = row.encode("utf-8", "surrogateescape")
        if chunk and size + len(encoded) > CHUNK:
            yield chunk
            chunk, size = [], 0
        chunk.append(encoded)
        size += len(encoded)
    if chunk:
        yield chunk
