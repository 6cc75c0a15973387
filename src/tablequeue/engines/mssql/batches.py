"""The operations on batches that differ on SQL Server."""

from __future__ import annotations

from tablequeue.engines.batches import Batches
from tablequeue.engines.connection import Cursor
from tablequeue.engines.mssql.connection import unless_locked
from tablequeue.engines.params import Params
from tablequeue.engines.rows import OpenBatchRow
from tablequeue.engines.table import Table


class SQLServerBatches(Batches):
    def open_batches(self, cursor: Cursor, table: Table, params: Params) -> list[OpenBatchRow]:
        looked = super().open_batches
        return unless_locked(cursor, lambda: looked(cursor, table, params), [])
