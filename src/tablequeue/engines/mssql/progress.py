"""The operations on progress that differ on SQL Server."""

from __future__ import annotations

from tablequeue.engines.connection import Cursor
from tablequeue.engines.mssql.connection import unless_locked
from tablequeue.engines.params import Params
from tablequeue.engines.progress import ProgressReports
from tablequeue.engines.table import Table


class SQLServerProgress(ProgressReports):
    def forget_progress(self, cursor: Cursor, table: Table, params: Params) -> int:
        forgotten = super().forget_progress
        return unless_locked(cursor, lambda: forgotten(cursor, table, params), 0)
