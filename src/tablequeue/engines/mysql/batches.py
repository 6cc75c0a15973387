"""The operations on batches that differ on MariaDB and MySQL."""

from __future__ import annotations

from typing import Any

from tablequeue.engines.batches import Batches, open_batch_row
from tablequeue.engines.connection import Cursor
from tablequeue.engines.mysql.within import lock_held, looks, newest
from tablequeue.engines.params import Params
from tablequeue.engines.parts import pairs
from tablequeue.engines.rows import OpenBatchRow
from tablequeue.engines.table import Table


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
