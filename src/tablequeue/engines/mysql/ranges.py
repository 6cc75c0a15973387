"""Subscriptions on MariaDB and MySQL: claims of ranges without locks, and packets."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import pymysql
from pymysql.constants import ER

from tablequeue.engines.connection import Cursor
from tablequeue.engines.messages import EXPIRED as EXPIRED_LEASE
from tablequeue.engines.messages import Messages
from tablequeue.engines.mysql.connection import atomic
from tablequeue.engines.mysql.packets import put, sent, stored, together
from tablequeue.engines.mysql.pieces import Piece, ids_in, within
from tablequeue.engines.mysql.refusals import number_of
from tablequeue.engines.mysql.topics import TRIES, TRIES_SOON, MySQLTopics, insert_again, made
from tablequeue.engines.mysql.within import conflict, looks, newest
from tablequeue.engines.operation import Effect, operation
from tablequeue.engines.params import Params
from tablequeue.engines.range_reads import RangeReads
from tablequeue.engines.ranges import EXPIRED, PUMPED, Ranges
from tablequeue.engines.rows import Done
from tablequeue.engines.table import Table
from tablequeue.engines.texts import Row
from tablequeue.model.pacing import LARGEST

# A claim of n messages looks at n + LOOK runs, because its guess of the position may be old.
LOOK = 32


class MySQLRanges(Ranges):
    def __init__(self, messages: Messages, topics: MySQLTopics, reads: RangeReads) -> None:
        super().__init__(messages, topics, reads)
        self.topics: MySQLTopics = topics

    # -- claiming ----------------------------------------------------------------------------------------------------

    def sweep(self, cursor: Cursor, table: Table, params: Params) -> int:
        assert table.topic is not None, "of a subscription"
        self.topics.close_holes(cursor, table.topic, {})
        return super().sweep(cursor, table, params)

    @operation(Effect.WRITE)
    def complete_and_claim(self, cursor: Cursor, table: Table, params: Params) -> Done:
        """Do both in one packet, if the range is finished as a whole and no detached message may be ready."""
        if not table.detached_ready:
            ids = table.engine.load_ids(params["ids"])
            values: Params = params | {"least": params["n"], "number": len(ids), "sum": sum(ids)}
            completed, range = self._added(cursor, table, values, completes=True)
            if completed:
                return None, None if range is None else self._read(cursor, table, range)
        done = self.complete(cursor, table, params | {"token": params["held"]})
        return (done if len(done) < params["number"] else None), None

    def pump(self, cursor: Cursor, table: Table, params: Params) -> int:
        assert table.topic is not None, "of a subscription"
        self.topics.close_holes(cursor, table.topic, {})
        self.topics.sequence_soon(cursor, table.topic)
        for _ in range(TRIES_SOON):
            id, start = made(self._rows(cursor, table, "range_last", {}))
            start, pieces = _pieces(self._runs(cursor, table, start, PUMPED), start, PUMPED)
            if not pieces:
                return 0
            ids = ids_in(pieces)
            values: Params = {**params, "id": id + 1, "start": start, "end": start + len(ids) - 1}
            values |= {"pieces": json.dumps(pieces), "ids": json.dumps(ids)}
            try:
                together(cursor, values, table.statements("range_pump"))
            except pymysql.IntegrityError as error:
                if number_of(error) != ER.DUP_ENTRY:
                    raise  # else another session has moved them
            else:
                return len(ids)
        return 0

    def _atomic(self, cursor: Cursor) -> AbstractContextManager[None]:
        return atomic(cursor)

    def _range(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        assert table.topic is not None, "of a subscription"
        _, range = self._added(cursor, table, params | {"least": params["n"]})
        if range is None:
            self.topics.sequence_soon(cursor, table.topic)
            # The next range, however few messages it has.
            table.position = made(self._rows(cursor, table, "range_position", params))[0]
            _, range = self._added(cursor, table, params | {"least": 1})
        return [] if range is None else self._read(cursor, table, range)

    def _runs(self, cursor: Cursor, table: Table, start: int, n: int) -> list[Row]:
        cursor.execute(table.statement("range_claim.runs"), {"start": start, "look": n + LOOK})
        runs: list[Row] = cursor.fetchall()
        made(runs)
        return runs

    def _added(
        self, cursor: Cursor, table: Table, params: Params, *, completes: bool = False
    ) -> tuple[bool, Row | None]:
        """Add the next range, if `table.position` is a good guess, and it has enough messages; and return it.

        Another session may add it first. Then add the one after that. If it `completes`, the range that is held before
        is completed in the same transaction; else nothing is done. Return whether it was.
        """
        runs = self._runs(cursor, table, table.position, params["n"])
        *_, (offset, low, high, first_offset) = runs
        values: Params = {"runs": json.dumps([run[:3] for run in runs]), "first_offset": first_offset}
        values |= {**params, "end": offset + high - low}
        while True:
            try:
                if not completes:
                    steps = [table.statement("range_claim.insert"), table.statement("range_claim.find")]
                    return True, next(iter(sent(cursor, values, steps)[-1]), None)
                *_, found, completed = together(cursor, values, *table.bound(_completing))
                return bool(completed[0][0]), next(iter(found), None)
            except pymysql.IntegrityError as error:
                if number_of(error) != ER.DUP_ENTRY:
                    raise

    def _read(self, cursor: Cursor, table: Table, range: Row) -> list[Row]:
        """Return the messages of a range that was added, in the order of their offsets. It locks nothing."""
        found, last_offset, popped_at, lease_until = range
        table.position = last_offset + 1
        pieces: list[Piece] = json.loads(found)
        times: Params = {"popped_at": popped_at, "lease_until": lease_until}
        rows = within(cursor, table.statement("range_claim.read"), pieces, times)
        if len(pieces) > 1:
            by_id = {row[0]: row for row in rows}
            rows = [by_id[id] for id in ids_in(pieces) if id in by_id]
        return rows

    # -- positions ---------------------------------------------------------------------------------------------------

    def note_position(self, cursor: Cursor, table: Table, params: Params) -> int:
        statements = [*table.statements("range_wait"), *table.statements("range_note")]
        while True:
            try:
                *_, ((in_progress,),) = together(cursor, params, statements)
            except pymysql.IntegrityError as error:
                if number_of(error) != ER.DUP_ENTRY:
                    raise  # else another session has claimed meanwhile
            else:
                return int(in_progress)

    def trim(self, cursor: Cursor, topic: Table, params: Params) -> int:
        """Look what the subscriptions need, and drop the rest, if none of them has claimed or sought meanwhile."""
        if self.topics.bounds(cursor, topic, {}).first >= self._needed(cursor, params):
            return 0
        for _ in range(TRIES):
            before = ["set @tq_stays = true"]
            for table in params["tables"]:
                last, _ = made(self._rows(cursor, table, "range_last", {}))
                before += [put(one, id=str(last)) for one in table.statements("range_stay")]
            try:
                dropped = self.topics.trim_after(cursor, topic, self._needed(cursor, params), before)
            except pymysql.IntegrityError as error:
                if number_of(error) != ER.DUP_ENTRY:
                    raise
            else:
                if dropped is not None:
                    return dropped
        return 0

    def _end_leases(self, cursor: Cursor, table: Table, params: Params) -> None:
        ids = [id for (id,) in self._rows(cursor, table, "range_end_leases.find", params)]
        if ids:
            self._run(cursor, table, "range_end_leases.end", {**params, "ids": json.dumps(ids)})
        values: Params = {**params, "max_attempts": table.definition.max_attempts}
        while self._expire(cursor, table, values):
            pass

    def _absorb(self, cursor: Cursor, table: Table, params: Params) -> int:
        found = json.dumps([id for (id,) in self._rows(cursor, table, "range_absorb.find", params)])
        locked = [id for (id,) in self._rows(cursor, table, "range_absorb.lock", {**params, "ids": found})]
        return int(cursor.execute(table.statement("range_absorb.delete"), {"ids": json.dumps(locked)}))

    def _remaining(self, cursor: Cursor, table: Table, params: Params) -> int:
        number = 0
        for statement in table.statements("range_remaining"):
            cursor.execute(statement, params)
            number += cursor.fetchone()[0]
        return number

    # -- finishing ---------------------------------------------------------------------------------------------------

    def _extend_ranges(self, cursor: Cursor, table: Table, params: Params) -> dict[int, Any]:
        with atomic(cursor):
            held = self._hold(cursor, table, params)
            ids = _remaining(held, table.engine.load_ids(params["ids"])) if held is not None else []
            if held is None or not ids:
                return {}
            return dict.fromkeys(ids, self._row(cursor, table, "range_extend", params | {"id": held[0]})[0])

    def _lock_claims(self, cursor: Cursor, table: Table) -> None:
        insert_again(cursor, table.statement("range_wait"))

    def _complete_range(self, cursor: Cursor, table: Table, params: Params, ids: Sequence[int]) -> bool:
        values: Params = params | {"number": len(ids), "sum": sum(ids)}
        if cursor.ours:
            return bool(cursor.execute(table.statement("range_complete.by_token"), values))
        id = self._held_id(cursor, table, params)
        by_id = table.statement("range_complete.by_id")
        return id is not None and bool(cursor.execute(by_id, values | {"id": id}))

    def _hold(self, cursor: Cursor, table: Table, params: Params) -> Row | None:
        """Lock the range under `token`. Return it, if it is in progress."""
        held: Row | None
        if cursor.ours:
            held = self._row(cursor, table, "range_hold.by_token", params)
            return held
        id = self._held_id(cursor, table, params)
        if id is None:
            return None
        held = self._row(cursor, table, "range_hold.by_id", params | {"id": id})
        if held is None and looks(cursor, table):
            raise conflict()
        return held

    def _held_id(self, cursor: Cursor, table: Table, params: Params) -> int | None:
        """Return the id of the range under `token`, if it is in progress, in a caller's transaction."""
        if looks(cursor, table):
            rows = newest(cursor, table, table.statement("range_hold.by_token"), params)
        else:
            rows = self._rows(cursor, table, "range_id", params)
        return rows[0][0] if rows else None

    def _leave(self, cursor: Cursor, table: Table, params: Params, ids: Sequence[int]) -> list[int]:
        held = self._hold(cursor, table, params)
        leaving = _remaining(held, ids) if held is not None else []
        if held is not None and leaving:
            left = [*json.loads(held[2] or "[]"), *leaving]
            values: Params = params | {
                "id": held[0],
                "left_ids": json.dumps(left),
                "number": len(left),
                "apart_ids": held[3],
            }
            if "attempts" in params:
                self._detach(cursor, table, values, leaving)
                values["apart_ids"] = json.dumps([*json.loads(held[3] or "[]"), *leaving])
            self._run(cursor, table, "range_mark", values)
        return leaving

    def expire_ranges(self, cursor: Cursor, table: Table, params: Params) -> int:
        """Detach the messages of each range in a packet, if nothing has left it since a look without locks."""
        expired = self._rows(cursor, table, "range_expired.find", params | {"n": EXPIRED})
        for held in expired:
            ids = _remaining(held)
            values: Params = params | {"id": held[0], "left_ids": held[2], "ids": json.dumps(ids)}
            values |= {"attempts": 1, "delay": 0, "error": EXPIRED_LEASE}
            steps = ("range_detach.forget", "range_detach.add", "range_expire")
            setting = [statement for step in steps for statement in table.statements(step)]
            names = {"id": "@tq_range", "ids": "@tq_ids"}
            together(cursor, values, [
                stored(table.statement("range_expired.lock"), tq_range="max(id)"),
                "set @tq_ids = if(@tq_range is null, '[]', %(ids)s)",
                *(put(one, **names) for one in setting),
            ])  # fmt: skip
            table.ready_after(min(ids, default=1) - 1)
        table.detached_ready = table.detached_ready or bool(expired)
        return len(expired)

    def _expire(self, cursor: Cursor, table: Table, params: Params) -> int:
        """Detach the messages of ranges, in the transaction of a seek."""
        expired = self._rows(cursor, table, "range_expired.find", params | {"n": EXPIRED})
        for held in expired:
            values: Params = params | {"id": held[0], "attempts": 1, "delay": 0, "error": EXPIRED_LEASE}
            self._detach(cursor, table, values, _remaining(held))
            self._run(cursor, table, "range_expire", values)
        return len(expired)

    def _detach(self, cursor: Cursor, table: Table, params: Params, ids: Sequence[int]) -> None:
        """Make the messages of the range `id` rows of the queue."""
        values: Params = params | {"ids": table.engine.dump_ids(ids)}
        if not looks(cursor, table) or newest(cursor, table, table.statement("range_detach.find"), values):
            self._run(cursor, table, "range_detach.forget", values)
        self._run(cursor, table, "range_detach.add", values)
        table.detached_ready = True
        table.ready_after(min(ids) - 1)


def _completing(table: Table) -> tuple[list[str], list[str]]:
    """Return what completes the range under `held` and adds the next one, and what reads that one after the commit."""
    complete = put(table.statement("range_complete.by_token"), token="%(held)s")
    least = f"if(@tq_first, %(least)s, {LARGEST})"
    add = put(table.statement("range_claim.insert"), least=least)
    return [complete, "set @tq_first = row_count()", add], [table.statement("range_claim.find"), "select @tq_first"]


def _pieces(runs: Sequence[Row], start: int, n: int) -> tuple[int, list[Piece]]:
    """Return the offset at or after `start` with which the log begins, and the ids of up to `n` messages from it on."""
    start = max(start, runs[0][3])
    pieces: list[Piece] = []
    left = n
    for offset, first_id, high, _ in runs:
        low = first_id + max(start - offset, 0)
        if low <= high and left:
            pieces.append((low, min(high, low + left - 1)))
            left -= pieces[-1][1] - low + 1
    return start, pieces


def _remaining(held: Row, ids: Sequence[int] | None = None) -> list[int]:
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
