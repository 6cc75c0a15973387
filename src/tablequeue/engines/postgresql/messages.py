"""The operations on messages that need more than one statement on PostgreSQL: COPY and notifications."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from struct import pack
from time import monotonic
from typing import Any, TypeVar

from tablequeue.engines.connection import Cursor
from tablequeue.engines.low_water import note_claimed
from tablequeue.engines.messages import Messages
from tablequeue.engines.operation import Effect, operation
from tablequeue.engines.params import Params
from tablequeue.engines.parts import Part, old_and_new
from tablequeue.engines.postgresql.connection import atomic
from tablequeue.engines.postgresql.values import copy_field, copy_rows
from tablequeue.engines.rows import Done
from tablequeue.engines.table import Statements, Table
from tablequeue.engines.task_results import TaskResults
from tablequeue.engines.texts import Row
from tablequeue.model.message import CLAIMED, ID

T = TypeVar("T", bound=Collection[int])

# Minimum rows, or characters, of a bulk push that uses COPY instead of one INSERT of an array. Measured rates of COPY
# relative to the array: 0.6 with 100 rows of 100 bytes (COPY needs more round trips), 0.8 with 300, 1.5 with 1,000; 1.1
# with 30 rows of 1 kB, 2.0 with 10 of 8 kB, 3.3 with one of 64 kB, 7 with 10 of 1 MB.
COPY_FROM = 1000
COPY_FROM_SIZE = 50_000
# The distance of the mark of the notes from the last note: other threads may commit notes with lower ids later. The
# next sweep finds notes that are even further behind.
LATE_NOTES = 1000

# The operations after which a message is or becomes ready. The last column of their rows is {waited_for}.
NOTIFYING = frozenset(
    "push push_many push_each notify release fail reschedule redrive redrive_ids promote "
    "topic_push topic_push_many topic_push_each range_detach store_result".split()
)

# The arrays of push_each, each with the parameter of a row that fills it.
_ARRAYS = {
    "payloads": "payload",
    "headers": "headers",
    "priorities": "priority",
    "groups": "group",
    "keys": "key",
    "dues": "due",
    "delays": "delay",
    "each_expires": "expires",
}


class Notifying(Part):
    """Operations that notify waiting consumers."""

    @operation(Effect.STEP)
    def notify(self, cursor: Cursor, table: Table, params: Params) -> None:
        self._rows(cursor, table, "notify", params)

    def _rows(self, cursor: Cursor, table: Statements, operation: str, params: Mapping[str, Any]) -> list[Row]:
        if operation not in NOTIFYING:
            return super()._rows(cursor, table, operation, params)
        rows = super()._rows(cursor, table, operation, {"within": not table.engine.is_ours(cursor), **params})
        if any(row[-1] for row in rows):  # of a failure not each: dead letters wake nobody
            assert isinstance(table, Table), "of a push"
            table.notifies_apart = True
        return rows


class PostgreSQLMessages(Notifying, Messages):
    # -- pushing -----------------------------------------------------------------------------------------------------

    def push_many(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        payloads = params["payloads"]
        small = len(payloads) < COPY_FROM and sum(map(len, payloads)) < COPY_FROM_SIZE
        if small or not hasattr(cursor, "copy"):
            return sorted(row[0] for row in self._rows(cursor, table, "push_many", params))
        cursor.execute(table.statement("push_reserve"), {**params, "n": len(payloads)})
        ids, pushed_at, due_at, state, *expires_at = cursor.fetchone()
        headers, producer, group = (params[name] for name in ("headers", "producer", "group"))
        batch = [pack(">q", params["batch_id"])] if table.definition.batches else []
        shared = (headers, producer, pack(">i", params["priority"]), group, pushed_at, due_at, state)
        rest = [copy_field(value) for value in (*shared, *expires_at, *batch)]
        # Not copy.write_row(): the fields that all rows share are made only once.
        with cursor.copy(table.statement("push_copy")) as copy:
            for chunk in copy_rows(ids, payloads, rest):
                copy.write(chunk)
        self.notify(cursor, table, {})
        return ids

    def push_each(self, cursor: Cursor, table: Table, params: Params) -> list[int | None]:
        rows = params["rows"]
        arrays = {array: [row[name] for row in rows] for array, name in _ARRAYS.items()}
        return [row[0] for row in self._rows(cursor, table, "push_each", {**params, **arrays})]

    def move(self, cursor: Cursor, table: Table, params: Params) -> tuple[list[int], list[int]]:
        old, new = old_and_new(self._rows(cursor, table, "move", params))
        self.notify(cursor, table, {})
        return old, new

    # -- claiming ----------------------------------------------------------------------------------------------------

    def complete_stream(self, cursor: Cursor, table: Table, params: Params) -> None:
        if table.definition.batches:
            super().complete_stream(cursor, table, params)  # it notes which batches may end
        else:
            self._run(cursor, table, "complete_stream", params)

    @operation(Effect.WRITE)
    def complete_and_claim(self, cursor: Cursor, table: Table, params: Params) -> Done:
        return table.bound(self._together)(cursor, table, params)

    def _together(self, table: Table) -> Callable[[Cursor, Table, Params], Done]:
        """Return how messages are completed, and others claimed, in one call."""
        if table.definition.contended:
            return self._complete_apart
        if table.definition.limited:
            return self._complete_before
        return self._complete_in_turn if table.definition.fair else self._complete_above

    def _complete_apart(self, cursor: Cursor, table: Table, params: Params) -> Done:
        """Complete only: the claim locks rows that others need."""
        completed = self.complete(cursor, table, params | {"token": params["held"]})
        return (completed if len(completed) < params["number"] else None), None

    def _complete_before(self, cursor: Cursor, table: Table, params: Params) -> Done:
        """Use two statements: the first one frees places."""
        with atomic(cursor):
            return super().complete_and_claim(cursor, table, params)

    def _complete_above(self, cursor: Cursor, table: Table, params: Params) -> Done:
        mark, began = table.mark, monotonic()
        completed, rows = self._complete_with(cursor, table, params | {"low_water": mark.id})
        table.walks.claims.took(began, params["number"] + len(rows), whole=not mark.id, kind="complete_and_claim")
        if completed is not None:
            return completed, []
        if not rows:  # look below the mark
            return None, self.claim(cursor, table, params)
        note_claimed(cursor, table, mark, rows)
        return None, rows

    def _complete_in_turn(self, cursor: Cursor, table: Table, params: Params) -> Done:
        unfinished: list[Sequence[int]] = []
        first = [self._complete_with]  # the other claims only claim

        def claim(cursor: Cursor, table: Table, params: Params) -> list[Row]:
            if not first:
                return [] if unfinished else self._claim(cursor, table, params)
            completed, rows = first.pop()(cursor, table, params)
            if completed is not None:
                unfinished.append(completed)
            return [row[: len(CLAIMED) + 1] for row in rows]

        rows = self.fair.claimed(claim, cursor, table, params)
        return (unfinished[0] if unfinished else None), rows

    def _complete_with(self, cursor: Cursor, table: Table, params: Params) -> tuple[Sequence[int] | None, list[Row]]:
        """Complete and claim by one statement. Return the ids that were completed if some are lost, and the rows."""
        rows = self._rows(cursor, table, "complete_and_claim", params)
        told = next((row for row in rows if row[ID] is None), None)
        if told is not None:
            rows.remove(told)
            completed = told[-1] or ()
            if table.definition.batches:
                table.ending.update(batch for batch in told[-2] or () if batch is not None)
            if len(completed) < params["number"]:
                return completed, []
        return None, table.in_order(rows) if len(rows) > 1 else rows

    def promote(self, cursor: Cursor, table: Table, params: Params) -> int:
        # A grouped queue's mark is that of its notes.
        mark = table.mark
        ((promoted, last, _),) = self._rows(cursor, table, "promote", params | {"noted": mark.id})
        mark.id = max(0, (last or 0) - LATE_NOTES)
        return promoted

    # -- finishing ---------------------------------------------------------------------------------------------------

    def notify_results(self, cursor: Cursor, table: Table, params: Params) -> None:
        # Not in a caller's transaction, which may be prepared: see `notify`.
        if table.engine.is_ours(cursor):
            self.notify(cursor, table.waiting_for_results, {})

    # -- changing ----------------------------------------------------------------------------------------------------

    def cancel(self, cursor: Cursor, table: Table, params: Params) -> list[tuple[int, bool]]:
        return [(id, bool(told)) for id, told in self._rows(cursor, table, "cancel", params)]

    # -- private -----------------------------------------------------------------------------------------------------

    def _atomic(self, cursor: Cursor) -> AbstractContextManager[None]:
        return atomic(cursor)

    def _claimed(self, cursor: Cursor, table: Table, operation: str, params: Params) -> list[Row]:
        if not table.definition.contended or (operation == "take" and not table.definition.keeps_history):
            return super()._claimed(cursor, table, operation, params)
        # The claim has locked rows that others need, so it returns ids only: a client may take for ever to receive the
        # messages. They are read when it has been committed.
        claimed = self._rows(cursor, table, operation, params)
        if not claimed:
            return []
        read = "read_taken" if operation == "take" else "read_claimed"
        ids = table.engine.dump_ids([row[ID] for row in claimed])
        return super()._claimed(cursor, table, read, params | {"ids": ids})

    def _sweep(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        return [row[0] for row in self._rows(cursor, table, "sweep", params)]  # it has ended what was told to stop

    def _move_dead(self, cursor: Cursor, table: Table, params: Params, ids: Sequence[int]) -> None:
        super()._move_dead(cursor, table, params, ids)
        if ids and table.dead_letters is not None:
            self.notify(cursor, table.dead_letters, {})


class PostgreSQLTaskResults(Notifying, TaskResults):
    def store_result(self, cursor: Cursor, table: Table, params: Params) -> None:
        self._rows(cursor, table, "store_result", params)
