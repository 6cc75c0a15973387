"""Reports of progress in a caller's transaction on MariaDB and MySQL."""

from __future__ import annotations

from tablequeue.engines.connection import Cursor
from tablequeue.engines.mysql.within import looks, newest
from tablequeue.engines.params import Params
from tablequeue.engines.progress import ProgressReports
from tablequeue.engines.table import Table


class MySQLProgress(ProgressReports):
    def report_progress(self, cursor: Cursor, table: Table, params: Params) -> bool:
        seen = looks(cursor, table)
        if seen and newest(cursor, table, table.statement("holder"), params) != [(params["token"],)]:
            return False
        return super().report_progress(cursor, table, params | {"seen": int(seen)})
