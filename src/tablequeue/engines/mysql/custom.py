"""The operations that differ on MariaDB and MySQL by a few lines."""

from __future__ import annotations

from typing import Any

from tablequeue.engines.batches import Batches, open_batch_row
from tablequeue.engines.connection import Cursor
from tablequeue.engines.mysql.fair import until_room
from tablequeue.engines.mysql.packets import together
from tablequeue.engines.mysql.within import lock_held, looks, newest
from tablequeue.engines.operation import pairs
from tablequeue.engines.params import Params
from tablequeue.engines.pauses import Pauses
from tablequeue.engines.progress import ProgressReports
from tablequeue.engines.reads import Next, Reads
from tablequeue.engines.rows import OpenBatchRow
from tablequeue.engines.table import Table
from tablequeue.engines.task_results import TaskResults


class MySQLBatches(Batches):
    def open_batch(self, cursor: Cursor, table: Table, params: Params) -> int:
        self._run(cursor, table, "open_batch", params)
        return int(cursor.lastrowid)

    def batch_of(self, cursor: Cursor, table: Table, params: Params) -> tuple[bool, int | None]:
        if not looks(cursor, table):
            return super().batch_of(cursor, table, params)
        rows = lock_held(cursor, table, table.statement("batch_of"), params)
        return (True, rows[0][0]) if rows else (False, None)

    def batches_of(self, cursor: Cursor, table: Table, params: Params) -> dict[int, Any]:
        if not looks(cursor, table):
            return super().batches_of(cursor, table, params)
        return pairs(newest(cursor, table, table.statement("batches_of"), params))

    def open_batches(self, cursor: Cursor, table: Table, params: Params) -> list[OpenBatchRow]:
        if not looks(cursor, table):
            return super().open_batches(cursor, table, params)
        rows = newest(cursor, table, table.statement("open_batches"), params)
        return [open_batch_row(*row) for row in rows]

    def end_batch(self, cursor: Cursor, table: Table, params: Params) -> None:
        end, forget = table.statements("end_batch")
        cursor.execute(end, params)
        # In a caller's transaction the batch is one that it has just opened, without messages: nothing was counted. At
        # REPEATABLE READ the delete would lock a gap in the counts of all batches.
        if not looks(cursor, table):
            cursor.execute(forget, params)


class MySQLPauses(Pauses):
    def resume(self, cursor: Cursor, table: Table, params: Params) -> None:
        # To delete a row that is not there would lock the gap in which those of other queues may belong.
        if not looks(cursor, table) or newest(cursor, table, table.statement("paused"), {"now": None}):
            super().resume(cursor, table, params)


class MySQLProgress(ProgressReports):
    def report_progress(self, cursor: Cursor, table: Table, params: Params) -> bool:
        seen = looks(cursor, table)
        if seen and newest(cursor, table, table.statement("holder"), params) != [(params["token"],)]:
            return False
        return super().report_progress(cursor, table, params | {"seen": int(seen)})


class MySQLReads(Reads):
    def until_next(self, cursor: Cursor, table: Table, params: Params) -> Next:
        coming = super().until_next(cursor, table, params)
        if not table.definition.group_limited or coming.paused:
            return coming
        wait = until_room(cursor, table, params)
        if wait is None:
            return coming
        seconds = max(wait, float(coming.seconds or 0))
        return coming._replace(seconds=seconds, held=coming.held or wait > 0)


class MySQLTaskResults(TaskResults):
    def store_result(self, cursor: Cursor, table: Table, params: Params) -> None:
        if params["chord"] is None:
            self._run(cursor, table, "store_result", params)
        else:
            texts = ("store_result", "store_part")
            together(cursor, params, [table.statement(text) for text in texts])

    def read_results(self, cursor: Cursor, table: Table, params: Params) -> dict[str, bytes]:
        return super().read_results(cursor, table, params | {"keys": tuple(params["keys"])})
