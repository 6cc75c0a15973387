"""The operations on messages on MariaDB and MySQL, which need several statements where other engines need one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

import pymysql
from pymysql.constants import ER

from tablequeue.engines.base import Params, Table
from tablequeue.engines.connection import Cursor
from tablequeue.engines.messages import Messages, by_history
from tablequeue.engines.mysql.connection import atomic
from tablequeue.engines.mysql.fair import MySQLFair, lock_found, locked, seen_outside
from tablequeue.engines.mysql.gate import at_once
from tablequeue.engines.mysql.limits import MySQLLimits
from tablequeue.engines.mysql.refusals import number_of
from tablequeue.engines.mysql.rows import chunked, insert, row_values
from tablequeue.engines.texts import Row
from tablequeue.message import ID, LEASE_UNTIL, POPPED_AT

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


class Seen(NamedTuple):
    """What `look` found."""

    rows: list[Row]
    """Messages, as (id, due_at, priority)."""
    slots: str
    """The free places of a queue that limits its messages in progress; see free_slots.sql."""
    paused: bool
    """Whether claims are paused, which the snapshot of the caller's transaction may not show."""


class MySQLMessages(MySQLLimits, Messages):
    fair = MySQLFair()

    # -- pushing ---------------------------------------------------------------------------------------------------

    def push(self, cursor: Cursor, table: Table, params: Params) -> int | None:
        try:
            cursor.execute(table.statement("push"), params)
        except pymysql.IntegrityError as error:
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
        definition = table.definition
        if params["n"] > 1 or not cursor.ours or definition.fair or definition.limited:
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
        removes = operation.startswith("take")

        def removed(params: Params) -> list[Row]:
            if "seen" in params and params["seen"].paused:
                return []
            if table.definition.fair:
                rows = locked(cursor, table, params | {"removes": removes})
            elif cursor.ours:
                cursor.execute(lock, params)
                rows = list(cursor.fetchall())
            else:
                rows = self._found_and_locked(cursor, table, params)
            if rows:
                _change(cursor, table, params, rows, *changes)
            rows.sort(key=table.rank)  # type: ignore[arg-type]  # None: as tuples
            return rows

        if not table.definition.limited:
            with atomic(cursor):
                return removed(params)
        slots = self._free_slots(cursor, table, params) if cursor.ours else params["seen"].slots
        with atomic(cursor):
            return [*self.claim_within(cursor, table, params | {"slots": slots}, removed, removes=removes)]

    def look(self, cursor: Cursor, table: Table, params: Params) -> Seen:
        rows = self._look(cursor, table, params)
        paused = not rows and self._row(cursor, table, "paused", params) is not None
        return Seen(rows, self._free_slots(cursor, table, params), paused)

    def _look(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        if table.definition.fair:
            return self.fair.found(cursor, table, params)
        find, _ = table.statements("claim_find")
        # More than `n`: other consumers may have locked the first ones.
        cursor.execute(find, {"look": 2 * params["n"] + LOOK} | params | {"low_water": 0})
        return list(cursor.fetchall())

    @at_once(CLAIMS)
    def claim_run(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        if not table.definition.limited:
            with atomic(cursor):
                return self._run_locked(cursor, table, params)
        slots = self._free_slots(cursor, table, params)
        with atomic(cursor):
            locked = partial(self._run_locked, cursor, table)
            return [*self.claim_within(cursor, table, params | {"slots": slots}, locked)]

    @at_once(CLAIMS)
    def claim_group(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        lock, change = table.statements("claim_group")
        with atomic(cursor):
            cursor.execute(lock, params)
            rows = list(cursor.fetchall())
            if rows:
                _change(cursor, table, params, rows, change)
        return rows

    def _run_locked(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        head, find, lock, change = table.statements("claim_run")
        if not cursor.execute(head, params):
            return []
        (first,) = cursor.fetchone()
        cursor.execute(find, params | {"id": first, "look": params["n"] - 1})
        behind = [row[0] for row in cursor.fetchall()]
        cursor.execute(lock, params | {"ids": table.engine.dump_ids([first, *behind])})
        found = {row[ID]: row for row in cursor.fetchall()}
        ids = [first, *takewhile(lambda id: id in found and found[id][-1], behind)]
        rows = sorted(found[id][:-1] for id in ids)
        _change(cursor, table, params, rows, change)
        return rows

    def _found_and_locked(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Lock up to `n` messages in a caller's transaction: those that `look` saw outside of it, and its own."""
        look = 2 * params["n"] + LOOK
        while True:
            within = self._look(cursor, table, params | {"look": look})
            found = {row[0]: row for row in (*seen_outside(cursor, table, params, within), *within)}
            rows = lock_found(cursor, table, params, sorted(found.values(), key=FOUND.get(table.definition.order)))
            if len(rows) == params["n"] or len(within) < look:
                return rows
            look *= 8  # the rows that are locked by now are found again, and count

    @at_once(PROMOTIONS)
    def promote(self, cursor: Cursor, table: Table, params: Params) -> int:
        find, lock, choose, advance, forget = table.statements("promote")
        closed, retract = table.statements("retract")

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
                if refused := ids(closed, heads):
                    promoted -= cursor.execute(retract, params | {"ids": table.engine.dump_ids(refused)})
            if notes:
                ids(forget, notes)
        return promoted

    def move(self, cursor: Cursor, table: Table, params: Params) -> tuple[list[int], list[int]]:
        find, insert, made, unmark, delete = table.statements("move")
        cursor.execute(find, params)
        old = [row[0] for row in cursor.fetchall()]
        moved = {**params, "ids": table.engine.dump_ids(old)}
        if not old:
            return [], []
        try:
            cursor.execute(insert, moved)
        except pymysql.IntegrityError as error:
            if number_of(error) != ER.DUP_ENTRY:
                raise
            return old, []
        cursor.execute(made, moved)
        new = [row[0] for row in cursor.fetchall()]
        cursor.execute(unmark, moved)
        cursor.execute(delete, moved)
        return old, new

    # -- finishing -------------------------------------------------------------------------------------------------

    def _fail(self, cursor: Cursor, table: Table, params: Params) -> dict[int, str]:
        if table.definition.delivery == "at_most_once":
            return dict.fromkeys(self._finished(cursor, table, "fail_at_most_once", params), "lost")
        lock, change = table.statements("fail")
        ids = table.engine.load_ids(params["ids"])
        if len(ids) == 1:
            failed = cursor.execute(change, params)
            return {ids[0]: self._row(cursor, table, "fail_state", params)[0]} if failed else {}
        with atomic(cursor):
            cursor.execute(lock, params)
            states: dict[int, str] = dict(cursor.fetchall())
            if states:
                cursor.execute(change, params)
        return states

    def _release(self, cursor: Cursor, table: Table, params: Params) -> dict[int, bool]:
        # To ask which messages were in a run takes as long as to promote.
        return dict.fromkeys(self._finished(cursor, table, "release", params), table.definition.grouped)

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

    # -- changing --------------------------------------------------------------------------------------------------

    def cancel(self, cursor: Cursor, table: Table, params: Params) -> list[tuple[int, bool]]:
        with atomic(cursor):
            return super().cancel(cursor, table, params)

    def cancel_held(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        if table.definition.delivery == "at_most_once":
            return []
        find, *changes = table.statements("cancel_held")
        with atomic(cursor):
            cursor.execute(find, params)
            ids = [row[0] for row in cursor.fetchall()]
            for change in changes if ids else ():
                cursor.execute(change, params | {"ids": table.engine.dump_ids(ids)})
        return ids

    def _reschedule(self, cursor: Cursor, table: Table, params: Params) -> bool:
        find, change = table.statements("reschedule")
        with atomic(cursor):
            cursor.execute(find, params)
            found = cursor.fetchone() is not None
            if found:
                cursor.execute(change, params)
        return found

    # -- keeping ---------------------------------------------------------------------------------------------------

    def _atomic(self, cursor: Cursor) -> AbstractContextManager[None]:
        return atomic(cursor)

    def _sweep(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        find, lock, *changes = table.statements("sweep")
        cursor.execute(find, params)
        found = [row[0] for row in cursor.fetchall()]
        if not found:
            return []
        with atomic(cursor):
            cursor.execute(lock, params | {"ids": table.engine.dump_ids(found)})
            rows = list(cursor.fetchall())
            ids = [row[0] for row in rows]
            for change in changes if rows else ():
                cursor.execute(change, params | {"ids": table.engine.dump_ids(ids)})
            self._end_expired(cursor, table, params, [id for id, told in rows if told])
        return ids

    def _outdated(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        return self._found(cursor, table, by_history("expire", table), params)

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


def _change(cursor: Cursor, table: Table, params: Params, rows: Sequence[Row], *changes: str) -> None:
    """Run statements on the messages that a claim has locked and read, with the times that it has read."""
    times = {"popped_at": rows[0][POPPED_AT], "lease_until": rows[0][LEASE_UNTIL]}
    for change in changes:
        cursor.execute(change, params | times | {"ids": table.engine.dump_ids([row[ID] for row in rows])})
