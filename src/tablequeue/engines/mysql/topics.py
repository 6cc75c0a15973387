"""Topics and their subscriptions on MariaDB and MySQL: claims without locks, and holes that are closed by rows.

What changes the offsets of a topic looks without locks, computes, and then changes everything in one packet, if nobody
else has changed something meanwhile. So a consumer that is suspended between two statements holds up nobody.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from time import monotonic

import pymysql
from pymysql.constants import ER

from tablequeue.engines.connection import Cursor
from tablequeue.engines.mysql.connection import atomic
from tablequeue.engines.mysql.packets import put, sent, together
from tablequeue.engines.mysql.pieces import Piece, divided_by, ids_in, pieces_of, within
from tablequeue.engines.mysql.refusals import number_of
from tablequeue.engines.mysql.rows import chunked
from tablequeue.engines.operation import Effect, operation
from tablequeue.engines.params import Params
from tablequeue.engines.rows import BoundsRow
from tablequeue.engines.table import Table
from tablequeue.engines.texts import Row
from tablequeue.engines.topics import Topics
from tablequeue.errors import QueueNotFound
from tablequeue.model.pacing import LARGEST

# Holes of a topic that each look of a process takes in: the last ones.
RECENT = 100
# The number of messages above the last run that one look takes in, as `sequence` has it.
SEQUENCED = 100_000
# Seconds between two looks of a process at all holes; or HOLES_SHARE times as long as such a look takes.
HOLES_EVERY = 0.25
HOLES_SHARE = 20
# Looks at a topic whose change another session forestalled. After two of them others have taken in what was there when
# the call began, but for what came late into a hole that is not one of the last.
TRIES, TRIES_SOON = 10, 2
# Seconds between two tries of a process to close holes.
CLOSE_EVERY = 60.0
# The maximum number of messages of a run, and of those that a trim drops at once.
LONGEST_RUN = 100_000
TRIMMED = 10_000


class MySQLTopics(Topics):
    # -- pushing -----------------------------------------------------------------------------------------------------

    def push(self, cursor: Cursor, table: Table, params: Params) -> int:
        insert_again(cursor, table.statement("topic_push"), params)
        return int(cursor.lastrowid)

    def push_many(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        now, step = self._rows(cursor, table, "push_clock", {"now": params["now"]})[0]
        shared = (*(params[name] for name in ("headers", "producer", "group")), now)
        rest = cursor.mogrify(",%s,%s,%s,%s)", shared)
        return self._push_rows(
            cursor, table, (cursor.mogrify("(%s", (payload,)) + rest for payload in params["payloads"]), step
        )

    @operation(Effect.WRITE)
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
                insert_again(cursor, head + b",".join(chunk))
                ids += range(cursor.lastrowid, cursor.lastrowid + len(chunk) * step, step)
        return ids

    # -- positions ---------------------------------------------------------------------------------------------------

    def sequence(self, cursor: Cursor, table: Table, params: Params) -> None:
        self._looked(cursor, table, LARGEST, TRIES)

    def sequence_soon(self, cursor: Cursor, table: Table) -> None:
        """Look at what came after the last run, and at the last holes; or at all holes, if it is time."""
        began = monotonic()
        all_holes = began >= table.next_sweep
        self._looked(cursor, table, LARGEST if all_holes else RECENT, TRIES_SOON)
        if all_holes:
            table.next_sweep = began + max(HOLES_EVERY, HOLES_SHARE * (monotonic() - began))

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
        versions, found = sent(
            cursor, {}, [table.statement("close_holes.version"), table.statement("close_holes.find")]
        )
        holes = pieces_of(found)
        if not versions or not holes:
            return
        dirty, looking = table.statement("close_holes.dirty"), divided_by(table.statement("close_holes.look"), holes)
        looks = [one for divided in looking for one in (dirty, divided)]
        try:
            rows = {row[0] for rows in sent(cursor, {}, looks) for row in rows}
            dead = [hole for hole in holes if rows.isdisjoint(ids_in([hole]))]
            if dead:
                first, closed = json.dumps([first_id for first_id, _ in dead]), json.dumps(ids_in(dead))
                values: Params = {"version": versions[0][0], "ids": closed, "rows": first}
                deleting = put(table.statement("close_holes.delete"), ids="%(rows)s")
                together(cursor, values, [*table.statements("close_holes.change"), deleting])
        except pymysql.Error as error:
            # A transaction has just filled one of them, or will. The others are closed the next time.
            if number_of(error) not in (ER.DUP_ENTRY, ER.LOCK_WAIT_TIMEOUT, ER.LOCK_DEADLOCK):
                raise

    def trim(self, cursor: Cursor, table: Table, params: Params) -> int:
        return self.trim_after(cursor, table, params["start"], ["set @tq_stays = true"]) or 0

    def trim_after(self, cursor: Cursor, table: Table, start: int, before: Sequence[str]) -> int | None:
        """Drop messages that come before the offset `start`, in a packet, if the statements `before` set @tq_stays.

        Return how many were dropped; None if that was not so, or if another session has given offsets meanwhile.
        """
        look: Params = {"start": start, "n": TRIMMED + 1}
        looks = [table.statement(f"topic_trim.{one}") for one in ("version", "find")]
        versions, found = sent(cursor, look, looks)
        if not found:
            return 0
        (_, _, highest), *runs = found
        pieces: list[Piece] = []
        kept: list[tuple[int, int, int]] = []
        dropped = last = 0
        for offset, low, high in runs:
            n = min(high - low + 1, TRIMMED - dropped, start - offset)
            if n:
                pieces.append((low, low + n - 1))
                dropped, last, highest = dropped + n, offset + n - 1, max(highest, low + n - 1)
                if low + n <= high:
                    kept.append((offset + n, low + n, high))
        if not pieces:
            return 0
        values: Params = {
            "version": made(versions)[0],
            "ids": json.dumps(ids_in(pieces)),
            "last_offset": last,
            "highest": highest,
            "runs": json.dumps([(last, highest, highest), *kept]),
        }
        steps = ["change", *(["closed"] if dropped < TRIMMED else []), "tell"]
        statements = [one for step in steps for one in table.statements(f"topic_trim.{step}")]
        version = "if(@tq_stays, %(version)s, null)"
        trimming = [put(one, version=version) for one in statements]
        *_, ((was_first,),) = together(cursor, values, [*before, *trimming])
        return dropped if was_first else None

    def topic_rows(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        start, end = params["start"], params["end"]
        pieces = sorted(
            (low + max(start - offset, 0), min(high, low + end - 1 - offset), offset - low)
            for offset, low, high in self._rows(cursor, table, "topic_rows.runs", params)
        )
        lows = [low for low, _, _ in pieces]
        rows = within(cursor, table.statement("topic_rows.read"), [(low, high) for low, high, _ in pieces])
        return [(row[0] + pieces[bisect_right(lows, row[0]) - 1][2], *row) for row in rows]

    # -- private -----------------------------------------------------------------------------------------------------

    def _looked(self, cursor: Cursor, table: Table, n: int, tries: int) -> None:
        while tries and not self._sequence(cursor, table, n):
            tries -= 1

    def _sequence(self, cursor: Cursor, table: Table, n: int) -> bool:
        """Give offsets. Return False if another session did, after this one had looked."""
        versions, lasts, found, fresh = sent(cursor, {"n": n}, table.statements("sequence.look"))
        version, (first_offset, first_id, last_id, extends, highest) = made(versions)[0], made(lasts)
        holes = pieces_of(found)
        late = within(cursor, table.statement("sequence.late"), holes)
        islands = sorted([*pieces_of(fresh), *((id, id) for (id,) in late)])
        if not islands:
            return True
        runs = [(first_offset, first_id, last_id)]
        for low, high in islands:
            offset, start, end = runs[-1]
            joins = low == end + 1 and high - start < LONGEST_RUN and (extends or len(runs) > 1)
            runs[-1:] = [(offset, start, high)] if joins else [runs[-1], (offset + end - start + 1, low, high)]
        filled, rests = _rests([*sorted(holes), (highest + 1, islands[-1][1])], islands)
        steps = {"change": True, "extend": runs[0][2] > last_id, "add": runs[1:], "forget": filled, "note": rests}
        needed = [step for step, needed in steps.items() if needed]
        changes = [one for step in (*needed, "tell") for one in table.statements(f"sequence.{step}")]
        values: Params = {
            "version": version,
            "first_offset": first_offset,
            "last_id": runs[0][2],
            "runs": json.dumps(runs[1:]),
            "ids": json.dumps(filled),
            "pieces": json.dumps(rests),
        }
        *_, told = together(cursor, values, changes)
        return bool(told[0][0])


def insert_again(cursor: Cursor, statement: str | bytes, params: Params | None = None) -> bool:
    """Insert rows, whose ids another session may take at the same moment. Return whether there were any."""
    while True:
        try:
            return bool(cursor.execute(statement, params))
        except pymysql.IntegrityError as error:
            # The statement was rolled back, not the transaction.
            if number_of(error) != ER.DUP_ENTRY:
                raise


def made(rows: Sequence[Row]) -> Row:
    """Return the first row of a table that is never empty; if it is, its first row is just being inserted."""
    if not rows:
        raise QueueNotFound("The topic or the subscription is just being created.", "Try again.")
    return rows[0]


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
