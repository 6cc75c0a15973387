"""The operations on batches that differ on MariaDB and MySQL."""

from __future__ import annotations

from tablequeue.engines.batches import Batches
from tablequeue.engines.connection import Cursor
from tablequeue.engines.params import Params
from tablequeue.engines.table import Table


class MySQLBatches(Batches):
    def open_batch(self, cursor: Cursor, table: Table, params: Params) -> int:
        self._run(cursor, table, "open_batch", params)
        return int(cursor.lastrowid)
