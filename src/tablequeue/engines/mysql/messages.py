"""The operations on messages on MariaDB and MySQL, which need several statements where other engines need one.

Over 400 lines, because they are one part, and share how messages are locked, changed and counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from datetime import datetime
from functools import partial
from typing import Any

import pymysql
from pymysql.constants import ER

from tablequeue.engines.connection import Cursor
from tablequeue.engines.messages import Messages, completed_ids
from tablequeue.engines.mysql.claims import Completion, claimed
from tablequeue.engines.mysql.connection import atomic, check_locked, commits_each
from tablequeue.engines.mysql.fair import MySQLFair
from tablequeue.engines.mysql.gate import at_once
from tablequeue.engines.mysql.keys import MySQLKeys, dump
from tablequeue.engines.mysql.limits import MySQLLimits
from tablequeue.engines.mysql.packets import if_any, kept, put, sent, stored, together
from tablequeue.engines.mysql.refusals import number_of
from tablequeue.engines.mysql.rows import chunked, insert, row_values
from tablequeue.engines.mysql.within import Offer, conflict, lock, lock_held, offered, only
from tablequeue.engines.operation import Effect, operation, pairs
from tablequeue.engines.params import Params
from tablequeue.engines.rows import Done
from tablequeue.engines.table import Table
from tablequeue.engines.texts import Row
from tablequeue.model.message import ID, KEY, LEASE_UNTIL, POPPED_AT

# Claims, and promotions, of one process that run at once on a queue. With 8 claims instead of 4, each met three times
# as many locked rows. Promotions find the same notes: with 4 at once, 400 connections needed more than 150 s for 1,000
# messages in 12 groups; one at a time, 10 s.
CLAIMS, PROMOTIONS = 4, 1
# What a promotion does with the messages that it has chosen, as lists of ids in variables: those that become heads, of
# groups that are closed meanwhile, and those that were locked.
RESERVED = {
    name: f"concat('[', group_concat(case when {condition} then id end), ']')"
    for name, condition in (
        ("tq_ids", "head = id and not closed"),
        ("tq_closed", "head = id and closed"),
        ("tq_passed", "head is null"),
    )
}
# Of claims of one message, of several, and of those that complete others before.
claiming = at_once(CLAIMS)


class MySQLMessages(MySQLKeys, MySQLLimits, Messages):
    fair = MySQLFair()

    # -- pushing ---------------------------------------------------------------------------------------------------

    def push(self, cursor: Cursor, table: Table, params: Params) -> int | None:
        if params["key"] is None:
            cursor.execute(table.statement("push.insert"), params)
            return cursor.lastrowid
        if self._live_keys(cursor, table, [params["key"]]):
            return None
        take, add, note = table.statements("push")
        try:
            if cursor.ours:
                *_, ((id,),) = together(cursor, params, (take, add, note), ["select last_insert_id()"])
                return int(id)
            with atomic(cursor):
                cursor.execute(take, params)
                cursor.execute(add, params)
                pushed = cursor.lastrowid
                cursor.execute(note, params)
                return pushed
        except pymysql.IntegrityError as error:
            # INSERT IGNORE would hide other errors as well.
            if number_of(error) == ER.DUP_ENTRY:
                return None
            raise

    def push_many(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        now, step, states = self._before_rows(cursor, table, params)
        values = row_values(params, now, states, table.definition)
        rest = cursor.mogrify(",%s" * (len(values) - 1) + ")", values[1:])
        chunks = list(chunked(cursor.mogrify("(%s", (payload,)) + rest for payload in params["payloads"]))
        # A single statement needs no transaction, which would cost two more round trips.
        with atomic(cursor) if len(chunks) > 1 else nullcontext():
            return [id for id in insert(cursor, table.statement("push_rows"), chunks, step) if id is not None]

    @operation(Effect.WRITE)
    def push_each(self, cursor: Cursor, table: Table, params: Params) -> list[int | None]:
        rows = params["rows"]
        if not rows:
            return []
        now, step, states = self._before_rows(cursor, table, params)
        keys = [row["key"] for row in rows if row["key"] is not None]
        live = self.find_keys(cursor, table, {"keys": keys}) if cursor.ours else self._live_keys(cursor, table, keys)
        keyed = [place for place, row in enumerate(rows) if row["key"] is not None and row["key"] not in live]
        ids: list[int | None] = [None] * len(rows)
        with atomic(cursor):
            given = chunked(cursor.mogrify("(%s,0)", (rows[place]["key"],)) for place in keyed)
            inserted = insert(cursor, table.statement("push_keys"), given, step)
            free = {place for place, took in zip(keyed, inserted, strict=True) if took is not None}
            places = [place for place, row in enumerate(rows) if row["key"] is None or place in free]
            chunks = chunked(
                cursor.mogrify(f"({','.join(['%s'] * len(values))})", values)
                for values in (row_values(params | rows[place], now, states, table.definition) for place in places)
            )
            for place, id in zip(places, insert(cursor, table.statement("push_rows"), chunks, step), strict=True):
                ids[place] = id
            if free:
                taken = dump([[rows[place]["key"], ids[place]] for place in sorted(free)])
                cursor.execute(table.statement("note_live_keys"), {"taken": taken})
        return ids

    def forget_keys(self, cursor: Cursor, table: Table, params: Params) -> int:
        return _forgotten(cursor, table, "forget_keys", params)

    def forget_rate(self, cursor: Cursor, table: Table, params: Params) -> int:
        return _forgotten(cursor, table, "forget_rate", params)

    def forget_rates(self, cursor: Cursor, table: Table, params: Params) -> int:
        return _forgotten(cursor, table, "forget_rates", params)

    def close_slots(self, cursor: Cursor, table: Table, params: Params) -> None:
        _forgotten(cursor, table, "close_slots", params)

    def _before_rows(self, cursor: Cursor, table: Table, params: Params) -> tuple[datetime, int, tuple[str, str]]:
        """Return what a bulk push needs: the time, the step between ids, and the states of ready and later messages."""
        now, step = self._rows(cursor, table, "push_clock", {"now": params["now"]})[0]
        words = table.engine.words(table)
        return now, step, (words["pushed_ready"], words["pushed_scheduled"])

    # -- claiming --------------------------------------------------------------------------------------------------

    @operation(Effect.WRITE)
    def complete_and_claim(self, cursor: Cursor, table: Table, params: Params) -> Done:
        """Do both in one packet. A second claim, if the first one found nothing, is one of its own."""
        completion = Completion()

        @claiming
        def claim(_: MySQLMessages, cursor: Cursor, table: Table, params: Params) -> list[Row]:
            if completion.done is None:
                return claimed(cursor, table, params, "claim_many", completion)
            return claimed(cursor, table, params, "claim_many") if len(completion.done) == params["number"] else []

        rows = self._in_order(table, partial(claim, self))(cursor, table, params)
        table.ending.update(completion.ending)
        done = completion.done or []
        return (done, []) if len(done) < params["number"] else (None, rows)

    @claiming
    def _claim(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        if params["n"] > 1 or not cursor.ours or not table.bound(_claims_one):
            return self._removed(cursor, table, "claim_many", params)
        return [*sent(cursor, params, table.statements("claim"))[-1]]

    @at_once(CLAIMS)
    def _claim_alone(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        return claimed(cursor, table, params, "claim_alone")

    @at_once(CLAIMS)
    def _take(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        return self._removed(cursor, table, "take", params)

    def _removed(self, cursor: Cursor, table: Table, operation: str, params: Params) -> list[Row]:
        """Lock messages, then run the other statements of the operation on them."""
        if cursor.ours:
            return claimed(cursor, table, params, operation)
        changes = table.statements(f"{operation}.change")
        with atomic(cursor):
            return table.in_order(self._removed_within(cursor, table, params, changes, operation == "take"))

    def _removed_within(
        self, cursor: Cursor, table: Table, params: Params, changes: Sequence[str], removes: bool
    ) -> list[Row]:
        """Lock messages in a caller's transaction, and make the changes."""
        limited, more = table.definition.limited, 1
        params = {**params, "removes": removes}
        while True:
            with ExitStack() as pins:
                offer = pins.enter_context(offered(cursor, table, params, params["n"] * more))

                def removed(params: Params, pins: ExitStack = pins, offer: Offer = offer) -> list[Row]:
                    rows = lock(cursor, table, params, offer)
                    pins.close()  # the changes need the entries
                    if rows:
                        _change(cursor, table, params, rows, *changes)
                    elif limited:
                        raise conflict()  # it has locked places, or the rate, for nothing
                    return rows

                rows: Sequence[Row] = []
                if offer.rows:
                    within = params | {"n": min(params["n"], len(offer.rows))}
                    claim = partial(self.claim_within, removes=removes) if limited else _unlimited
                    rows = claim(cursor, table, within, removed)
            if rows or not offer.more:
                return [*rows]
            more *= 8  # others have locked all of them

    @at_once(CLAIMS)
    def claim_run(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        return claimed(cursor, table, params, "claim_run")

    @at_once(CLAIMS)
    def claim_group(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        return claimed(cursor, table, params, "claim_group")

    @at_once(PROMOTIONS)
    def promote(self, cursor: Cursor, table: Table, params: Params) -> int:
        noted = [row[0] for row in self._rows(cursor, table, "promote.find", params)]
        if not noted:
            return 0
        values: Params = {**params, "ids": table.engine.dump_ids(noted)}
        *_, promoted = together(cursor, values, table.bound(_promoting), ["select @tq_promoted"])
        return int(promoted[0][0])

    def extend(self, cursor: Cursor, table: Table, params: Params) -> dict[int, Any]:
        if not cursor.ours:
            held = [row[0] for row in _changed_step_by_step(cursor, table, params, "extend")]
            return pairs(self._rows(cursor, table, "extend.read", only(params, table, held)))
        # In one packet: else a sweep finds a lease that ends now before this call has read its end.
        changing = (*table.statements("extend.change"), table.statement("extend.read"))
        *_, rows = together(cursor, params, changing)
        return pairs(rows)

    def move(self, cursor: Cursor, table: Table, params: Params) -> tuple[list[int], list[int]]:
        old = [row[0] for row in self._rows(cursor, table, "move.find", params)]
        moved = {**params, "ids": table.engine.dump_ids(old)}
        if not old:
            return [], []
        try:
            self._run(cursor, table, "move.insert", moved)
        except pymysql.IntegrityError as error:
            if number_of(error) != ER.DUP_ENTRY:
                raise
            return old, []
        new = [row[0] for row in self._rows(cursor, table, "move.read", moved)]
        self._run(cursor, table, "move.unmark", moved)
        self._run(cursor, table, "move.delete", moved)
        return old, new

    # -- finishing -------------------------------------------------------------------------------------------------

    def _fail(self, cursor: Cursor, table: Table, params: Params) -> dict[int, str]:
        if table.definition.delivery == "at_most_once":
            return dict.fromkeys(self._finished(cursor, table, "fail_at_most_once", params), "lost")
        rows = _changed(cursor, table, "fail", params, rows="json_array(id, state)", buries=True)
        return pairs(rows)

    def _release(self, cursor: Cursor, table: Table, params: Params) -> dict[int, bool]:
        # To ask which messages were in a run takes as long as to promote.
        return dict.fromkeys(self._finished(cursor, table, "release", params), table.definition.grouped)

    def _finished(self, cursor: Cursor, table: Table, operation: str, params: Params) -> list[int]:
        changes = table.statements(f"{operation}.change")
        ids: list[int] = json.loads(params["ids"])
        tells = table.definition.batches and operation.startswith("complete")
        if len(ids) == 1 and len(changes) == 1 and not tells and cursor.ours:
            return ids if cursor.execute(changes[0], params) else []
        if tells:
            return completed_ids(table, _changed(cursor, table, operation, params, rows="json_array(id, ending)"))
        return [row[0] for row in _changed(cursor, table, operation, params)]

    # -- changing --------------------------------------------------------------------------------------------------

    def cancel(self, cursor: Cursor, table: Table, params: Params) -> list[tuple[int, bool]]:
        rows = _changed(cursor, table, "cancel", params, rows="json_array(id, told)")
        return [(id, bool(told)) for id, told in rows]

    def cancel_held(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        if table.definition.delivery == "at_most_once":
            return []
        return [row[0] for row in _changed(cursor, table, "cancel_held", params)]

    def _reschedule(self, cursor: Cursor, table: Table, params: Params) -> bool:
        return bool(_changed(cursor, table, "reschedule", params))

    # -- keeping ---------------------------------------------------------------------------------------------------

    def _atomic(self, cursor: Cursor) -> AbstractContextManager[None]:
        return atomic(cursor)

    def _moving(self, cursor: Cursor, table: Table) -> AbstractContextManager[None]:
        return nullcontext() if cursor.ours else super()._moving(cursor, table)

    def _move_dead(self, cursor: Cursor, table: Table, params: Params, ids: Sequence[int]) -> None:
        if not commits_each(cursor.connection):  # else `_changed` has done it
            super()._move_dead(cursor, table, params, ids)

    def _sweep(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        found = [row[0] for row in self._rows(cursor, table, "sweep.find", params)]
        if not found:
            return []
        ids = params | {"ids": table.engine.dump_ids(found)}
        rows = _changed(cursor, table, "sweep", ids, rows="json_array(id, told)", buries=True)
        self._end_expired(cursor, table, params, [id for id, told in rows if told])
        return [id for id, _ in rows]

    def _outdated(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        return self._found(cursor, table, "expire", params)

    def purge(self, cursor: Cursor, table: Table, params: Params) -> int:
        return len(self._found(cursor, table, "purge", params, params["state"]))

    def purge_ids(self, cursor: Cursor, table: Table, params: Params) -> int:
        return len(_changed(cursor, table, "purge_ids", params, params["state"]))

    def purge_history(self, cursor: Cursor, table: Table, params: Params) -> int:
        return len(self._found(cursor, table, "purge_history", params))

    def _redrive(self, cursor: Cursor, table: Table, operation: str, params: Params) -> list[int]:
        if operation == "redrive":
            return sorted(self._found(cursor, table, operation, params))
        return sorted(row[0] for row in _changed(cursor, table, operation, params))

    # -- private -------------------------------------------------------------------------------------------------------

    def _found(self, cursor: Cursor, table: Table, operation: str, params: Params, state: str = "ready") -> list[int]:
        """Find messages without locks, lock those that no other transaction has locked, and change them.

        Return their ids.
        """
        cursor.execute(table.statement(f"{operation}.find", state), params)
        found = [row[0] for row in cursor.fetchall()]
        if not found:
            return []
        ids = params | {"ids": table.engine.dump_ids(found)}
        buries = operation == "expire" and not table.definition.keeps_history
        return [row[0] for row in _changed(cursor, table, operation, ids, state, buries=buries)]


def _forgotten(cursor: Cursor, table: Table, operation: str, params: Params) -> int:
    """Delete rows that no other transaction has locked, and do what comes after. Return their number."""
    *_, ((number,),) = together(cursor, params, table.bound(_changing, operation), ["select @tq_n"])
    return int(number)


def _changed(
    cursor: Cursor,
    table: Table,
    operation: str,
    params: Params,
    state: str = "ready",
    *,
    rows: str = "json_array(id)",
    buries: bool = False,
) -> list[Row]:
    """Lock messages, and change those that were locked, in one transaction; if it `buries`, move dead letters, too.

    The sections `lock` and `change` of the operation do it.

    Return what was locked: its columns, which `rows` writes as JSON. On a connection of ours it is one packet.
    """
    if not commits_each(cursor.connection):
        return _changed_step_by_step(cursor, table, params, operation, state)
    inside = table.bound(_changing, operation, state, rows, buries)
    *_, ((found,),) = together(cursor, params | {"origin": table.name}, inside, ["select @tq_rows"])
    return json.loads(found or "[]")


def _changing(table: Table, operation: str, state: str = "ready", rows: str = "", buries: bool = False) -> list[str]:
    """Return what locks messages and changes those; and what moves the dead letters among them, if it `buries`."""
    lock, changes = table.statement(f"{operation}.lock", state), table.statements(f"{operation}.change", state)
    dead = table.statements("move_dead") if buries and table.dead_letters is not None else []
    found = kept(lock, **({"tq_rows": f"json_arrayagg({rows})"} if rows else {}))
    return [found, *(put(change, ids="@tq_ids") for change in (*changes, *dead))]


def _promoting(table: Table) -> list[str]:
    def step(name: str, **expressions: str) -> str:
        return put(table.statement(f"promote.{name}"), **expressions)

    return [
        stored(step("lock"), tq_notes="json_arrayagg(id)"),
        stored(step("choose", ids="@tq_notes"), tq_chosen="json_arrayagg(id)"),
        step("reserve", ids="@tq_chosen"),
        stored(step("reserved", ids="@tq_chosen"), **RESERVED),
        step("advance", ids="@tq_ids"),
        "set @tq_promoted = row_count()",
        *if_any("@tq_closed", step("give_back", ids="@tq_closed")),
        *if_any("@tq_passed", step("note_again", ids="@tq_passed")),
        step("forget", ids="@tq_notes"),
    ]


def _claims_one(table: Table) -> bool:
    """Return whether a claim of one message is a packet of its own."""
    return not (table.definition.fair or table.definition.limited)


def _unlimited(cursor: Cursor, table: Table, params: Params, claim: Callable[[Params], list[Row]]) -> list[Row]:
    return claim(params)


def _changed_step_by_step(
    cursor: Cursor, table: Table, params: Params, operation: str, state: str = "ready"
) -> list[Row]:
    lock, changes = table.statement(f"{operation}.lock", state), table.statements(f"{operation}.change", state)
    with atomic(cursor):
        rows = _selected(cursor, lock, params) if cursor.ours else lock_held(cursor, table, lock, params)
        if rows:
            params = only(params, table, [row[0] for row in rows])
            for change in changes:
                cursor.execute(change, params)
    return rows


def _selected(cursor: Cursor, lock: str, params: Params) -> list[Row]:
    cursor.execute(lock, params)
    return list(cursor.fetchall())


def _change(cursor: Cursor, table: Table, params: Params, rows: Sequence[Row], *changes: str) -> None:
    """Run statements on the messages that a claim has locked and read, with the times that it has read."""
    times = {"popped_at": rows[0][POPPED_AT], "lease_until": rows[0][LEASE_UNTIL]}
    keys = sum(row[KEY] is not None for row in rows)
    for change in changes:
        changed = cursor.execute(change, params | times | {"ids": table.engine.dump_ids([row[ID] for row in rows])})
        # What deletes messages deletes the rows of their keys, which count too.
        check_locked(changed - keys if change.startswith("delete") else changed, rows)
