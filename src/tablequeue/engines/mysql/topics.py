"""Topics and their subscriptions on MariaDB and MySQL: claims without locks, and holes that are closed by rows."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from time import monotonic
from typing import Any

import pymysql
from pymysql.constants import ER

from tablequeue.engines.base import Params, Table
from tablequeue.engines.connection import Cursor
from tablequeue.engines.messages import Messages
from tablequeue.engines.mysql.connection import atomic
from tablequeue.engines.mysql.pieces import Piece, ids_in, within
from tablequeue.engines.mysql.refusals import number_of
from tablequeue.engines.mysql.rows import chunked
from tablequeue.engines.range_reads import RangeReads
from tablequeue.engines.ranges import EXPIRED, PUMPED, Ranges
from tablequeue.engines.rows import BoundsRow
from tablequeue.engines.texts import Row
from tablequeue.engines.topics import Topics
from tablequeue.pacing import LARGEST

# Holes of a topic that each look of a process takes in: the last ones.
RECENT = 100
# A claim of n messages looks at n + LOOK runs, because its guess of the position may be old.
LOOK = 32
# The number of messages above the last run that one look takes in, as sequence.sql has it.
SEQUENCED = 100_000
# Seconds between two looks of a process at all holes; or HOLES_SHARE times as long as such a look takes.
HOLES_EVERY = 0.25
HOLES_SHARE = 20
# Seconds between two tries of a process to close holes.
CLOSE_EVERY = 60.0
# The maximum number of messages of a run, and of those that a trim drops at once.
LONGEST_RUN = 100_000
TRIMMED = 10_000


class MySQLTopics(Topics):
    # -- pushing -----------------------------------------------------------------------------------------------------

    def push(self, cursor: Cursor, table: Table, params: Params) -> int:
        _insert(cursor, table.statement("topic_push"), params)
        return int(cursor.lastrowid)

    def push_many(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        now, step = self._rows(cursor, table, "push_clock", {"now": params["now"]})[0]
        shared = (*(params[name] for name in ("headers", "producer", "group")), now)
        rest = cursor.mogrify(",%s,%s,%s,%s)", shared)
        return self._push_rows(
            cursor, table, (cursor.mogrify("(%s", (payload,)) + rest for payload in params["payloads"]), step
        )

    def push_each(self, cursor: Cursor, table: Table, params: Params) -> list[int | None]:
        now, step = self._rows(cursor, table, "push_clock", {"now": params["now"]})[0]
        names = ("payload", "headers", "producer", "group")
        rows = ((*((params | row)[name] for name in names), now) for row in params["rows"])
        return [*self._push_rows(cursor, table, (cursor.mogrify("(%s,%s,%s,%s,%s)", row) for row in rows), step)]

    def _push_rows(self, cursor: Cursor, table: Table, rows: Iterable[str], step: int) -> list[int]:
        head = table.statement("topic_push_rows").partition("values")[0].encode() + b"values "
        ids: list[int] = []
        with atomic(cursor):
            for chunk in chunked(rows):
                _insert(cursor, head + b",".join(chunk))
                ids += range(cursor.lastrowid, cursor.lastrowid + len(chunk) * step, step)
        return ids

    # -- positions ---------------------------------------------------------------------------------------------------

    def sequence(self, cursor: Cursor, table: Table, params: Params) -> None:
        with atomic(cursor):
            self._run(cursor, table, "sequence_wait", params)
            self._sequence(cursor, table, LARGEST)

    def sequence_soon(self, cursor: Cursor, table: Table) -> bool:
        """Look at what came after the last run, and at the last holes; or at all holes, if it is time.

        Do nothing, and return False, if another session gives offsets just now.
        """
        began = monotonic()
        all_holes = began >= table.next_sweep
        with atomic(cursor):
            looked = self._sequence(cursor, table, LARGEST if all_holes else RECENT)
        if all_holes:
            table.next_sweep = began + max(HOLES_EVERY, HOLES_SHARE * (monotonic() - began))
        return looked

    def settle(self, cursor: Cursor, table: Table, params: Params) -> BoundsRow:
        last = params["start"]
        while True:
            found = super().settle(cursor, table, params)
            if found.end - last < SEQUENCED or found.end - params["start"] >= params["n"]:
                return found
            last = found.end

    def close_holes(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Close holes that no transaction will fill, if it is time. Never in a transaction."""
        if monotonic() < table.next_close:
            return
        table.next_close = monotonic() + CLOSE_EVERY
        dirty, lock, find, look, insert, delete = table.statements("close_holes")
        cursor.execute(dirty)
        try:
            with atomic(cursor):
                cursor.execute(lock)
                if not cursor.fetchall():
                    return
                cursor.execute(find)
                holes: list[Piece] = cursor.fetchall()
                rows = {row[0] for row in within(cursor, look, holes)}
                dead = [hole for hole in holes if rows.isdisjoint(ids_in([hole]))]
                if dead:
                    cursor.execute(insert, {"ids": json.dumps(ids_in(dead))})
                    cursor.execute(delete, {"ids": json.dumps([first_id for first_id, _ in dead])})
        except pymysql.Error as error:
            # A transaction has just filled one of them, or will. The others are closed the next time.
            if number_of(error) not in (ER.DUP_ENTRY, ER.LOCK_WAIT_TIMEOUT, ER.LOCK_DEADLOCK):
                raise

    def trim(self, cursor: Cursor, table: Table, params: Params) -> int:
        find, delete, forget, add = table.statements("topic_trim")
        with atomic(cursor):
            self._run(cursor, table, "sequence_wait", params)
            cursor.execute(find, {"start": params["start"], "n": TRIMMED + 1})
            found = cursor.fetchall()
            if not found:
                return 0
            (_, _, highest), *runs = found
            pieces: list[Piece] = []
            kept: list[tuple[int, int, int]] = []
            dropped = last = 0
            for offset, low, high in runs:
                n = min(high - low + 1, TRIMMED - dropped, params["start"] - offset)
                if n:
                    pieces.append((low, low + n - 1))
                    dropped, last, highest = dropped + n, offset + n - 1, max(highest, low + n - 1)
                    if low + n <= high:
                        kept.append((offset + n, low + n, high))
            if pieces:
                cursor.execute(delete, {"ids": json.dumps(ids_in(pieces))})
                cursor.execute(forget, {"last_offset": last})
                cursor.execute(add, {"runs": json.dumps([(last, highest, highest), *kept])})
        return dropped

    def topic_rows(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        find, select = table.statements("topic_rows")
        cursor.execute(find, params)
        start, end = params["start"], params["end"]
        pieces = sorted(
            (low + max(start - offset, 0), min(high, low + end - 1 - offset), offset - low)
            for offset, low, high in cursor.fetchall()
        )
        lows = [low for low, _, _ in pieces]
        rows = within(cursor, select, [(low, high) for low, high, _ in pieces])
        return [(row[0] + pieces[bisect_right(lows, row[0]) - 1][2], *row) for row in rows]

    # -- private -----------------------------------------------------------------------------------------------------

    def _sequence(self, cursor: Cursor, table: Table, n: int) -> bool:
        lock, last, find, fresh, late, extend, add, forget, note = table.statements("sequence")
        cursor.execute(lock)
        if not cursor.fetchall():
            return False
        cursor.execute(last)
        first_offset, first_id, last_id, extends, highest = cursor.fetchone()
        cursor.execute(find, {"n": n})
        holes: list[Piece] = cursor.fetchall()
        cursor.execute(fresh, {"last_id": highest})
        islands: list[Piece] = [*cursor.fetchall()]
        islands = sorted([*islands, *((id, id) for (id,) in within(cursor, late, holes))])
        if not islands:
            return True
        runs = [(first_offset, first_id, last_id)]
        for low, high in islands:
            offset, start, end = runs[-1]
            joins = low == end + 1 and high - start < LONGEST_RUN and (extends or len(runs) > 1)
            runs[-1:] = [(offset, start, high)] if joins else [runs[-1], (offset + end - start + 1, low, high)]
        if runs[0][2] > last_id:
            cursor.execute(extend, {"first_offset": first_offset, "last_id": runs[0][2]})
        if runs[1:]:
            cursor.execute(add, {"runs": json.dumps(runs[1:])})
        filled, rests = _rests([*sorted(holes), (highest + 1, islands[-1][1])], islands)
        if filled:
            cursor.execute(forget, {"ids": json.dumps(filled)})
        if rests:
            cursor.execute(note, {"pieces": json.dumps(rests)})
        return True


class MySQLRanges(Ranges):
    def __init__(self, messages: Messages, topics: MySQLTopics, reads: RangeReads) -> None:
        super().__init__(messages, topics, reads)
        self.topics: MySQLTopics = topics

    # -- claiming ----------------------------------------------------------------------------------------------------

    def sweep(self, cursor: Cursor, table: Table, params: Params) -> int:
        assert table.topic is not None, "of a subscription"
        self.topics.close_holes(cursor, table.topic, {})
        return super().sweep(cursor, table, params)

    def pump(self, cursor: Cursor, table: Table, params: Params) -> int:
        assert table.topic is not None, "of a subscription"
        lock, insert, find, forget, move = table.statements("range_pump")
        self.topics.sequence_soon(cursor, table.topic)
        cursor.execute(lock)
        if not cursor.fetchall() or not self._insert_next(cursor, table, params | {"n": PUMPED}, insert):
            return 0
        cursor.execute(find)
        ((pieces,),) = cursor.fetchall()
        values: Params = params | {"ids": json.dumps(ids_in(json.loads(pieces)))}
        cursor.execute(forget, values)
        cursor.execute(move, values)
        return int(cursor.rowcount)

    def _atomic(self, cursor: Cursor) -> AbstractContextManager[None]:
        return atomic(cursor)

    def _range(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        assert table.topic is not None, "of a subscription"
        _, insert, find, select = table.statements("range_claim")
        if not self._insert_range(cursor, table, params | {"least": params["n"]}, insert):
            looked = self.topics.sequence_soon(cursor, table.topic)
            if not self._insert_next(cursor, table, params, insert):
                if looked:
                    return []
                self.topics.sequence(cursor, table.topic, {})
                if not self._insert_next(cursor, table, params, insert):
                    return []
        cursor.execute(find, params)
        ((found, last_offset, popped_at, lease_until),) = cursor.fetchall()
        table.position = last_offset + 1
        pieces: list[Piece] = json.loads(found)
        rows = within(cursor, select, pieces, {"popped_at": popped_at, "lease_until": lease_until})
        if len(pieces) > 1:
            by_id = {row[0]: row for row in rows}
            rows = [by_id[id] for id in ids_in(pieces) if id in by_id]
        return rows

    def _insert_next(self, cursor: Cursor, table: Table, params: Params, insert: str) -> bool:
        """Add the next range, however few messages it has. Return whether there is one."""
        table.position = self._row(cursor, table, "range_position", params)[0]
        return self._insert_range(cursor, table, params | {"least": 1}, insert)

    def _insert_range(self, cursor: Cursor, table: Table, params: Params, insert: str) -> bool:
        """Add the next range, if `table.position` is a good guess, and it has enough messages. Return whether it does.

        Another session may add it first. Then add the one after that.
        """
        cursor.execute(table.statements("range_claim")[0], {"start": table.position, "look": params["n"] + LOOK})
        runs = cursor.fetchall()
        *_, (offset, low, high, first_offset) = runs
        values: Params = {"runs": json.dumps([run[:3] for run in runs]), "first_offset": first_offset}
        return _insert(cursor, insert, params | values | {"end": offset + high - low})

    # -- finishing ---------------------------------------------------------------------------------------------------

    def _extend_ranges(self, cursor: Cursor, table: Table, params: Params) -> dict[int, Any]:
        with atomic(cursor):
            held = self._hold(cursor, table, params)
            ids = _remaining(held, table.engine.load_ids(params["ids"])) if held is not None else []
            if held is None or not ids:
                return {}
            return dict.fromkeys(ids, self._row(cursor, table, "range_extend", params | {"id": held[0]})[0])

    def _lock_claims(self, cursor: Cursor, table: Table) -> None:
        _insert(cursor, table.statement("range_wait"))

    def _complete_range(self, cursor: Cursor, table: Table, params: Params, ids: Sequence[int]) -> bool:
        by_token, by_id = table.statements("range_complete")
        values: Params = params | {"number": len(ids), "sum": sum(ids)}
        if cursor.ours:
            return bool(cursor.execute(by_token, values))
        row = self._row(cursor, table, "range_id", params)
        return row is not None and bool(cursor.execute(by_id, values | {"id": row[0]}))

    def _hold(self, cursor: Cursor, table: Table, params: Params) -> Row | None:
        """Lock the range under `token`. Return it, if it is in progress."""
        by_token, by_id = table.statements("range_hold")
        row = None if cursor.ours else self._row(cursor, table, "range_id", params)
        cursor.execute(*((by_token, params) if row is None else (by_id, params | {"id": row[0]})))
        held: Row | None = cursor.fetchone()
        return held

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
                self._set_apart(cursor, table, values, leaving)
                values["apart_ids"] = json.dumps([*json.loads(held[3] or "[]"), *leaving])
            self._run(cursor, table, "range_mark", values)
        return leaving

    def _expire(self, cursor: Cursor, table: Table, params: Params) -> int:
        expired = self._rows(cursor, table, "range_expired", params | {"n": EXPIRED})
        for held in expired:
            values: Params = params | {"id": held[0], "attempts": 1, "delay": 0, "error": "lease expired"}
            self._set_apart(cursor, table, values, _remaining(held))
            self._run(cursor, table, "range_expire", values)
        return len(expired)

    def _set_apart(self, cursor: Cursor, table: Table, params: Params, ids: Sequence[int]) -> None:
        """Make the messages of the range `id` rows of the queue."""
        self._run(cursor, table, "range_set_apart", params | {"ids": table.engine.dump_ids(ids)})
        table.apart_ready = True
        table.ready_after(min(ids) - 1)


def _insert(cursor: Cursor, statement: str | bytes, params: Params | None = None) -> bool:
    """Insert rows, whose ids another session may take at the same moment. Return whether there were any."""
    while True:
        try:
            return bool(cursor.execute(statement, params))
        except pymysql.IntegrityError as error:
            # The statement was rolled back, not the transaction.
            if number_of(error) != ER.DUP_ENTRY:
                raise


def _rests(holes: Iterable[Piece], islands: Sequence[Piece]) -> tuple[list[int], list[Piece]]:
    """Return the first ids of the holes that have islands, and what is left of these holes. All are sorted by id."""
    filled: list[int] = []
    rests: list[Piece] = []
    place = 0
    for first_id, last_id in holes:
        free = first_id
        while place < len(islands) and islands[place][0] <= last_id:
            low, high = islands[place]
            rests.append((free, low - 1))
            free, place = high + 1, place + 1
        if free > first_id:
            filled.append(first_id)
            rests.append((free, last_id))
    return filled, [(low, high) for low, high in rests if low <= high]


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
