"""Deduplication keys on MariaDB and MySQL.

To look for keys in a caller's transaction would lock the gaps between them at REPEATABLE READ, and an insert with a key
that is taken locks the message that has it. So a look is on a connection of our own; see within.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from tablequeue.engines.connection import Cursor
from tablequeue.engines.messages import Messages
from tablequeue.engines.mysql.packets import without_lock
from tablequeue.engines.mysql.within import looks, newest, settled
from tablequeue.engines.operation import pairs
from tablequeue.engines.params import Params
from tablequeue.engines.table import Table
from tablequeue.engines.texts import Row

# Maximum number of keys in an IN list. From 1,000 on MariaDB turns it into a table, and may read the whole index.
KEYS = 500


class MySQLKeys(Messages):
    def find_keys(self, cursor: Cursor, table: Table, params: Params) -> dict[str, int]:
        find = table.statement("find_keys")
        if cursor.beside is None:
            return _found(lambda keys: _read(cursor, find, keys), params["keys"])
        return _found(lambda keys: newest(cursor, table, find, keys), params["keys"])

    def taken_keys(self, cursor: Cursor, table: Table, params: Params) -> dict[str, int]:
        if cursor.beside is None:
            return super().taken_keys(cursor, table, params)
        return pairs(newest(cursor, table, table.statement("taken_keys"), params))

    def take_keys(self, cursor: Cursor, table: Table, params: Params) -> set[str]:
        if not looks(cursor, table):
            return super().take_keys(cursor, table, params | {"seen": 0})
        asked = json.loads(params["taken"])
        given = self._taken_keys(cursor, table, params) | self._live_keys(cursor, table, [key for key, *_ in asked])
        free = [row for row in asked if row[0] not in given]
        return super().take_keys(cursor, table, params | {"seen": 1, "taken": dump(free)}) if free else set()

    def end_keys(self, cursor: Cursor, table: Table, params: Params) -> int:
        keys = [key for key, *_ in json.loads(params["taken"])]
        find = table.statement("find_keys")
        live = _found(lambda keys: _seen(cursor, table, find, keys), keys)
        taken = self._taken_keys(cursor, table, params)
        ended = sorted((key, id) for key, id in live.items() if key not in taken)
        if ended:
            self._run(cursor, table, "end_keys", {"ended": dump(ended)})
        return len(ended)

    def _live_keys(self, cursor: Cursor, table: Table, keys: Sequence[str]) -> set[str]:
        """Return those of the keys that messages have, in a call in a caller's transaction."""
        if cursor.beside is None:
            return set()  # what has them is found by the push itself
        find = table.statement("find_keys")
        return {*_found(lambda keys: settled(cursor, table, find, keys), keys)}

    def _taken_keys(self, cursor: Cursor, table: Table, params: Params) -> set[str]:
        return {key for key, _ in _seen(cursor, table, table.statement("taken_keys"), params)}


def dump(rows: Sequence[Sequence[object]]) -> str:
    return json.dumps(rows, ensure_ascii=False)


def _found(find: Callable[[Params], Sequence[Row]], keys: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for start in range(0, len(keys), KEYS):
        found |= pairs(find({"keys": tuple(keys[start : start + KEYS])}))
    return found


def _seen(cursor: Cursor, table: Table, find: str, params: Params) -> list[Row]:
    """Return what a statement that locks would return, without locks: in a caller's transaction, beside it."""
    return settled(cursor, table, find, params) if looks(cursor, table) else _read(cursor, without_lock(find), params)


def _read(cursor: Cursor, look: str, params: Params) -> list[Row]:
    cursor.execute(look, params)
    return list(cursor.fetchall())
