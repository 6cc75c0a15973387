"""The operations on messages on MariaDB and MySQL, which need several statements where other engines need one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from typing import Any

import pymysql
from pymysql.constants import ER

from tablequeue.engines.base import Params, Table
from tablequeue.engines.connection import Cursor
from tablequeue.engines.messages import Messages, by_history
from tablequeue.engines.mysql.connection import atomic
from tablequeue.engines.mysql.gate import at_once
from tablequeue.engines.mysql.refusals import number_of
from tablequeue.engines.mysql.rows import chunked, insert, row_values
from tablequeue.engines.texts import Row
from tablequeue.message import LEASE_UNTIL, POPPED_AT

# Maximum number of keys in an IN list. From 1,000 on MariaDB turns it into a table, and may read the whole index.
KEYS = 500
# A claim of n messages in a caller's transaction looks at 2 n + LOOK messages.
LOOK = 32
# Claims, and promotions, of one process that run at once on a queue. With 8 claims instead of 4, each met three times
# as many locked rows. Promotions find the same notes: with 4 at once, 400 connections needed more than 150 s for 1,000
# messages in 12 groups; one at a time, 10 s.
CLAIMS, PROMOTIONS = 4, 1
# The sort keys of the rows that `look` returns. In other orders they sort by id, the first column.
FOUND: Mapping[str, Callable[[Row], Any]] = {
    "lifo": lambda row: -row[0],
    "due": lambda row: (row[1], row[0]),
    "priority": lambda row: (-row[2], row[0]),
}


class MySQLMessages(Messages):
    # -- pushing ---------------------------------------------------------------------------------------------------

    def push(self, cursor: Cursor, table: Table, params: Params) -> int | None:
        try:
            cursor.execute(table.statement("push"), params)
        except pymysql.err.IntegrityError as error:
            # Only the statement is rolled back. INSERT IGNORE would hide other errors as well.
            if params["key"] is not None and number_of(error) == ER.DUP_ENTRY:
                return None
            raise
        return cursor.lastrowid

    def push_many(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        now, step, states = self._before_rows(cursor, table, params)
        values = row_values(params, now, states, table.definition.expires)
        rest = cursor.mogrify(",%s" * (len(values) - 1) + ")", values[1:])
        chunks = list(chunked(cursor.mogrify("(%s", (payload,)) + rest for payload in params["payloads"]))
        # A single statement needs no transaction, which would cost two more round trips.
        with atomic(cursor) if len(chunks) > 1 else nullcontext():
            return [id for id in insert(cursor, table.statement("push_rows"), chunks, step) if id is not None]

    def push_each(self, cursor: Cursor, table: Table, params: Params) -> list[int | None]:
        rows = params["rows"]
        if not rows:
            return []
        now, step, states = self._before_rows(cursor, table, params)
        keys = [row["key"] for row in rows if row["key"] is not None]
        # This only saves the search below. It is left out in a caller's transaction: under REPEATABLE READ it would
        # lock the gaps of absent keys. If two transactions did so for the same keys, neither could push them.
        taken = self.find_keys(cursor, table, {"keys": keys}) if cursor.ours else {}
        places = [place for place, row in enumerate(rows) if row["key"] not in taken]
        chunks = chunked(
            cursor.mogrify(f"({','.join(['%s'] * len(values))})", values)
            for values in (row_values(params | rows[place], now, states, table.definition.expires) for place in places)
        )
        ids: list[int | None] = [None] * len(rows)
        with atomic(cursor):
            for place, id in zip(places, insert(cursor, table.statement("push_rows"), chunks, step), strict=True):
                ids[place] = id
        return ids

    def find_keys(self, cursor: Cursor, table: Table, params: Params) -> dict[str, int]:
        found: dict[str, int] = {}
        keys = params["keys"]
        for start in range(0, len(keys), KEYS):
            for key, id in self._rows(cursor, table, "find_keys", {"keys": tuple(keys[start : start + KEYS])}):
                found[key] = id
        return found

    def forget_keys(self, cursor: Cursor, table: Table, params: Params) -> int:
        self._run(cursor, table, "forget_keys", params)
        return cursor.rowcount

    def _before_rows(self, cursor: Cursor, table: Table, params: Params) -> tuple[datetime, int, tuple[str, str]]:
        """Return what a bulk push needs: the time, the step between ids, and the states of ready and later messages."""
        now, step = self._rows(cursor, table, "push_clock", {"now": params["now"]})[0]
        words = table.engine.words(table)
        return now, step, (words["pushed_ready"], words["pushed_scheduled"])

    # -- claiming --------------------------------------------------------------------------------------------------

    def complete_and_claim(
        self, cursor: Cursor, table: Table, params: Params
    ) -> tuple[Sequence[int] | None, list[Row]]:
        with atomic(cursor):
            return super().complete_and_claim(cursor, table, params)

    @at_once(CLAIMS)
    def _claim(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        if params["n"] > 1 or not cursor.ours:
            return self._removed(cursor, table, "claim_many", params)
        update, select = table.statements("claim")
        if not cursor.execute(update, params):
            return []
        cursor.execute(select, params)
        return list(cursor.fetchall())

    @at_once(CLAIMS)
    def _take(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        return self._removed(cursor, table, by_history("take", table), params)

    def _removed(self, cursor: Cursor, table: Table, operation: str, params: Params) -> list[Row]:
        """Lock messages, then run the other statements of the operation on them."""
        lock, *changes = table.statements(operation)
        with atomic(cursor):
            if cursor.ours:
                cursor.execute(lock, params)
                rows = list(cursor.fetchall())
            else:
                rows = self._found_and_locked(cursor, table, params)
            if rows:
                more = {"ids": table.engine.dump_ids([row[0] for row in rows])}
                more |= {"popped_at": rows[0][POPPED_AT], "lease_until": rows[0][LEASE_UNTIL]}
                for change in changes:
                    cursor.execute(change, params | more)
        rows.sort(key=table.rank)
        return rows

    def look(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Return rows of (id, due_at, priority)."""
        find, _ = table.statements("claim_find")
        # More than `n`: other consumers may have locked the first ones.
        cursor.execute(find, {"look": 2 * params["n"] + LOOK} | params | {"low_water": 0})
        return list(cursor.fetchall())

    def _found_and_locked(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Lock up to `n` messages in a caller's transaction: those that `look` saw outside of it, and its own."""
        _, lock = table.statements("claim_find")
        look = 2 * params["n"] + LOOK
        while True:
            within = self.look(cursor, table, params | {"look": look})
            found = {row[0]: row for row in (*params["seen"], *within)}
            ids = [row[0] for row in sorted(found.values(), key=FOUND.get(table.definition.order))]
            cursor.execute(lock, {"lease": None} | params | {"ids": str(ids)})
            rows = list(cursor.fetchall())
            if len(rows) == params["n"] or len(within) < look:
                return rows
            look *= 8  # the rows that are locked by now are found again, and count

    @at_once(PROMOTIONS)
    def promote(self, cursor: Cursor, table: Table, params: Params) -> int:
        find, lock, choose, advance, forget = table.statements("promote")

        def ids(statement: str, among: Sequence[int] = ()) -> list[int]:
            cursor.execute(statement, params | {"ids": table.engine.dump_ids(among)})
            return [row[0] for row in cursor.fetchall() if row[0] is not None]

        noted = ids(find)
        if not noted:
            return 0
        with atomic(cursor):
            notes = ids(lock, noted)
            heads = ids(choose, notes) if notes else []
            promoted: int = 0
            if heads:
                promoted = cursor.execute(advance, params | {"ids": table.engine.dump_ids(heads)})
            if notes:
                ids(forget, notes)
        return promoted

    # -- finishing -------------------------------------------------------------------------------------------------

    def _fail(self, cursor: Cursor, table: Table, params: Params) -> str | None:
        once = table.definition.delivery == "at_most_once"
        if not cursor.execute(table.statement("fail_at_most_once" if once else "fail"), params):
            return None
        if once:
            return "lost"
        state: str = self._rows(cursor, table, "fail_state", params)[0][0]
        return state

    def _finished(self, cursor: Cursor, table: Table, operation: str, params: Params) -> list[int]:
        lock, *changes = table.statements(operation)
        ids: list[int] = json.loads(params["ids"])
        if len(ids) == 1 and len(changes) == 1:
            return ids if cursor.execute(changes[0], params) else []
        with atomic(cursor):
            if len(ids) > 1:
                cursor.execute(lock, params)
                ids = [row[0] for row in cursor.fetchall()]
            for change in changes:
                if not ids or not cursor.execute(change, params):
                    return []
        return ids

    # -- keeping ---------------------------------------------------------------------------------------------------

    def _sweep(self, cursor: Cursor, table: Table, params: Params) -> int:
        return len(self._found(cursor, table, "sweep", params))

    def expire(self, cursor: Cursor, table: Table, params: Params) -> int:
        return len(self._found(cursor, table, by_history("expire", table), params))

    def purge(self, cursor: Cursor, table: Table, params: Params) -> int:
        return len(self._found(cursor, table, "purge", params, params["state"]))

    def purge_history(self, cursor: Cursor, table: Table, params: Params) -> int:
        return len(self._found(cursor, table, "purge_history", params))

    def _redrive(self, cursor: Cursor, table: Table, operation: str, params: Params) -> list[int]:
        if operation == "redrive":
            return sorted(self._found(cursor, table, operation, params))
        lock, change = table.statements(operation)
        with atomic(cursor):
            cursor.execute(lock, params)
            ids = [row[0] for row in cursor.fetchall()]
            if ids:
                cursor.execute(change, params | {"ids": table.engine.dump_ids(ids)})
        return sorted(ids)

    # -- private -------------------------------------------------------------------------------------------------------

    def _found(self, cursor: Cursor, table: Table, operation: str, params: Params, state: str = "ready") -> list[int]:
        """Find messages without locks, lock those that no other transaction has locked, and change them.

        Return their ids.
        """
        find, lock, *changes = table.statements(operation, state)
        cursor.execute(find, params)
        found = [row[0] for row in cursor.fetchall()]
        if not found:
            return []
        with atomic(cursor):
            cursor.execute(lock, params | {"ids": table.engine.dump_ids(found)})
            ids = [row[0] for row in cursor.fetchall()]
            if ids:
                for change in changes:
                    cursor.execute(change, params | {"ids": table.engine.dump_ids(ids)})
        return ids
