"""Topics and their subscriptions on PostgreSQL: COPY, and claims by a function, which is one round trip."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from time import monotonic
from typing import Any

from tablequeue.engines.connection import Cursor
from tablequeue.engines.operation import Effect, operation
from tablequeue.engines.params import Params
from tablequeue.engines.postgresql.connection import atomic, in_one_message
from tablequeue.engines.postgresql.messages import COPY_FROM, COPY_FROM_SIZE, Notifying
from tablequeue.engines.postgresql.reads import PostgreSQLReads
from tablequeue.engines.postgresql.values import copy_field, copy_rows
from tablequeue.engines.range_reads import RangeReads
from tablequeue.engines.ranges import PUMPED, Ranges
from tablequeue.engines.rows import BoundsRow, Done
from tablequeue.engines.table import Table
from tablequeue.engines.texts import Row
from tablequeue.engines.topics import Topics

# What a claim finishes that finishes nothing.
ALONE: Mapping[str, Any] = {"held": None, "number": None, "sum": None}
# Seconds between two looks of a process at all holes of a topic; or HOLES_SHARE times as long as such a look takes.
HOLES_EVERY = 0.25
HOLES_SHARE = 20
# The number of messages above the last run that one sequencing looks at, as `create_topic` has it.
SEQUENCED = 100_000


class PostgreSQLTopics(Notifying, Topics):
    def push_many(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        payloads = params["payloads"]
        small = len(payloads) < COPY_FROM and sum(map(len, payloads)) < COPY_FROM_SIZE
        if small or params["now"] is not None or not hasattr(cursor, "copy"):
            return sorted(row[0] for row in self._rows(cursor, table, "topic_push_many", params))
        with atomic(cursor):
            cursor.execute(table.statement("topic_reserve"), {"n": len(payloads)})
            ids: list[int] = cursor.fetchone()[0]
            rest = [copy_field(params[name]) for name in ("headers", "producer", "group")]
            with cursor.copy(table.statement("topic_copy")) as copy:
                for chunk in copy_rows(ids, payloads, rest):
                    copy.write(chunk)
        self.notify(cursor, table, {})
        return ids

    def push_each(self, cursor: Cursor, table: Table, params: Params) -> list[int | None]:
        rows = params["rows"]
        arrays = {array: [row[name] for row in rows] for array, name in _ARRAYS.items()}
        return sorted(row[0] for row in self._rows(cursor, table, "topic_push_each", {**params, **arrays}))

    def sequence(self, cursor: Cursor, table: Table, params: Params) -> None:
        self._run(cursor, table, "sequence", {})

    def settle(self, cursor: Cursor, table: Table, params: Params) -> BoundsRow:
        last = params["start"]
        settling = [*table.statements("sequence"), *table.statements("topic_bounds"), *table.statements("topic_flush")]
        while True:
            _, (bounds,), _ = in_one_message(cursor, settling, params)
            found = BoundsRow(*bounds)
            if found.end - last < SEQUENCED or found.end - params["start"] >= params["n"]:
                return found
            last = found.end


_ARRAYS = {"payloads": "payload", "headers": "headers", "groups": "group"}


class PostgreSQLRanges(Notifying, Ranges):
    @operation(Effect.WRITE)
    def complete_and_claim(self, cursor: Cursor, table: Table, params: Params) -> Done:
        """Do both in one round trip, if the range is finished as a whole and no detached message may be ready."""
        if not table.detached_ready:
            held: Params = {"held": params["held"], "number": params["number"], "sum": sum(params["ids"])}
            rows = self._claimed_range(cursor, table, params, held)
            if rows is not None:
                return None, rows
        completed = self.complete(cursor, table, params | {"token": params["held"]})
        return (completed if len(completed) < params["number"] else None), None

    def note_position(self, cursor: Cursor, table: Table, params: Params) -> int:
        noting = [*table.statements("range_wait"), *table.statements("range_note")]
        _, ((in_progress,),) = in_one_message(cursor, noting, params)
        return int(in_progress)

    def pump(self, cursor: Cursor, table: Table, params: Params) -> int:
        return int(self._row(cursor, table, "range_pump", params | {"n": PUMPED})[0])

    def _atomic(self, cursor: Cursor) -> AbstractContextManager[None]:
        return atomic(cursor)

    def _lock_claims(self, cursor: Cursor, table: Table) -> None:
        self._run(cursor, table, "range_wait", {})

    def _range(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        return self._claimed_range(cursor, table, params, ALONE) or []

    def _claimed_range(
        self, cursor: Cursor, table: Table, params: Params, finishing: Mapping[str, Any]
    ) -> list[Row] | None:
        """Claim the next range; first complete the one that `finishing` names. Return None if that was not held."""
        topic = table.topic
        assert topic is not None, "of a subscription"
        began = monotonic()
        all_holes = began >= topic.next_sweep
        claim, read = table.statement("range_claim.claim"), table.statement("range_claim.read")
        values = {**params, **finishing, "all_holes": all_holes}
        ((completed,),), rows = in_one_message(cursor, [claim], values, after=[read])
        if all_holes:
            topic.next_sweep = began + max(HOLES_EVERY, HOLES_SHARE * (monotonic() - began))
        return rows if completed else None

    def trim(self, cursor: Cursor, topic: Table, params: Params) -> int:
        """Do it in one call: the function looks for the subscriptions, and what they need, by itself."""
        return self.topics.trim(cursor, topic, params)


class PostgreSQLRangeReads(RangeReads, PostgreSQLReads):
    """The reads of a subscription."""
