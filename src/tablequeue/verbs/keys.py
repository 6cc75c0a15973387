"""Keys that stay taken for a time after the push, even if the message is finished: `unique_for`."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tablequeue.engines.connection import Cursor
from tablequeue.engines.table import Table
from tablequeue.verbs.context import Context, Params


def push_each(
    context: Context, cursor: Cursor, table: Table, params: Params, rows: Sequence[Params], *, renew: bool
) -> list[Any]:
    """Push each row that has a free key, in the transaction of the cursor, which takes the keys too.

    Return the ids in the same order; None for a row with a taken key, also if an earlier row took it. With `renew` an
    expired key may be taken from an unfinished message, which then has no key.
    """
    messages = context.messages
    first = {row["key"]: place for place, row in reversed([*enumerate(rows)]) if row["key"] is not None}
    token = secrets.token_hex(16)
    # Sorted, so that two transactions that take the same keys wait for each other and do not deadlock.
    wanted = _dump((key, rows[first[key]]["unique_for"]) for key in sorted(filter(None, first)))
    asked = params | {"token": token, "taken": wanted}
    taken = messages.take_keys(cursor, table, asked) if first else set()
    # Only if a key was not free, so a push of a new key needs no further statement.
    if renew and len(taken) < len(first) and messages.end_keys(cursor, table, asked):
        taken |= messages.take_keys(cursor, table, asked)
    places = [
        place
        for place, row in enumerate(rows)
        if row["key"] is None or (row["key"] in taken and first[row["key"]] == place)
    ]
    ids: list[int | None] = [None] * len(rows)
    pushed = messages.push_each(cursor, table, params | {"rows": [rows[place] for place in places]}) if places else []
    for place, id in zip(places, pushed, strict=True):
        ids[place] = id
    if taken:
        named = _dump((key, ids[place := first[key]], rows[place]["unique_for"]) for key in sorted(taken))
        messages.name_keys(cursor, table, params | {"taken": named})
    return ids


def take(context: Context, cursor: Cursor, table: Table, params: Params, wanted: Sequence[str]) -> set[str]:
    """Take keys for the time of the queue. Return the keys that were free."""
    if not wanted:
        return set()
    taken = _dump((key, None) for key in wanted)
    return context.messages.take_keys(cursor, table, params | {"token": secrets.token_hex(16), "taken": taken})


def name(context: Context, cursor: Cursor, table: Table, params: Params, ids: Mapping[str, int | None]) -> None:
    """Note the messages that have taken keys. A key without a message is free again."""
    context.messages.name_keys(cursor, table, params | {"taken": _dump(sorted(ids.items()))})


def find(context: Context, cursor: Cursor, table: Table, params: Params, keys: Sequence[str]) -> dict[str, int]:
    """Return the keys that are taken, with the ids of the messages that have or had them."""
    there = context.messages.find_keys(cursor, table, {"keys": keys})
    if table.definition.unique_for:
        wanted = params | {"taken": _dump((key,) for key in keys)}
        there = context.messages.taken_keys(cursor, table, wanted) | there
    return there


def _dump(rows: Iterable[Sequence[Any]]) -> str:
    # Not escaped: MariaDB's JSON_TABLE returns nothing for an escaped pair of surrogates.
    return json.dumps([*rows], ensure_ascii=False)
