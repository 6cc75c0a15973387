"""Topics and their subscriptions on SQL Server: JSON arrays, and a procedure that sequences."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager

from tablequeue.engines.connection import Cursor
from tablequeue.engines.mssql.connection import atomic
from tablequeue.engines.mssql.messages import json_rows
from tablequeue.engines.mssql.refusals import LOCK_TIMEOUT, is_driver_error, number_of
from tablequeue.engines.mssql.steps import STEP, steps_of, text_of
from tablequeue.engines.params import Params
from tablequeue.engines.ranges import Ranges
from tablequeue.engines.rows import BoundsRow
from tablequeue.engines.table import Table
from tablequeue.engines.topics import Topics

# The number of messages above the last run that one sequencing looks at, as `create_topic` has it.
SEQUENCED = 100_000


class SQLServerTopics(Topics):
    def push_many(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        steps = [json.dumps([*map(text_of, step)], ensure_ascii=False) for step in steps_of(params["payloads"], len)]
        return self._pushed(cursor, table, "topic_push_many", [{**params, "payloads": step} for step in steps])

    def push_each(self, cursor: Cursor, table: Table, params: Params) -> list[int | None]:
        steps = steps_of(params["rows"], lambda row: len(row["payload"]))
        return [
            *self._pushed(cursor, table, "topic_push_each", [{**params, "rows": json_rows(step)} for step in steps])
        ]

    def sequence(self, cursor: Cursor, table: Table, params: Params) -> None:
        self._run(cursor, table, "sequence", params)

    def settle(self, cursor: Cursor, table: Table, params: Params) -> BoundsRow:
        last = params["start"]
        while True:
            with atomic(cursor):
                # Wait for another session that sequences: it may have looked before our messages came.
                self._run(cursor, table, "sequence_lock", {})
                found = super().settle(cursor, table, params)
            if found.end - last < SEQUENCED or found.end - params["start"] >= params["n"]:
                return found
            last = found.end

    def _pushed(self, cursor: Cursor, table: Table, operation: str, steps: Sequence[Params]) -> list[int]:
        if len(steps) == 1:
            return sorted(row[0] for row in self._rows(cursor, table, operation, steps[0]))
        with atomic(cursor):
            return sorted(row[0] for step in steps for row in self._rows(cursor, table, operation, step))


class SQLServerRanges(Ranges):
    def sweep(self, cursor: Cursor, table: Table, params: Params) -> int:
        # A claim looks at the last holes only. Here, not in the transaction below: it holds a lock of the whole topic.
        self.topics.sequence(cursor, table, params)
        return super().sweep(cursor, table, params)

    def _lock_claims(self, cursor: Cursor, table: Table) -> None:
        self._run(cursor, table, "range_wait", {})

    def _atomic(self, cursor: Cursor) -> AbstractContextManager[None]:
        return atomic(cursor)

    def _leave(self, cursor: Cursor, table: Table, params: Params, ids: Sequence[int]) -> list[int]:
        steps = [ids[start : start + STEP] for start in range(0, len(ids), STEP)]
        return [id for step in steps for id in super(SQLServerRanges, self)._leave(cursor, table, params, step)]

    def _absorb(self, cursor: Cursor, table: Table, params: Params) -> int:
        return int(self._row(cursor, table, "range_absorb", params)[0])

    def floor(self, cursor: Cursor, table: Table, params: Params) -> int:
        try:
            return super().floor(cursor, table, params)
        except Exception as error:
            # A transaction is finishing a range, and READ_COMMITTED_SNAPSHOT is off. All may be needed still.
            if is_driver_error(error) and number_of(error) == LOCK_TIMEOUT:
                return 0
            raise

    def pump(self, cursor: Cursor, table: Table, params: Params) -> int:
        self.topics.sequence(cursor, table, params)
        with atomic(cursor):
            return super().pump(cursor, table, params) if self._row(cursor, table, "range_lock", {})[0] else 0
