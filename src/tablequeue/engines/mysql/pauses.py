"""The end of a pause in a caller's transaction on MariaDB and MySQL."""

from __future__ import annotations

from tablequeue.engines.connection import Cursor
from tablequeue.engines.mysql.within import looks, newest
from tablequeue.engines.params import Params
from tablequeue.engines.pauses import Pauses
from tablequeue.engines.table import Table


class MySQLPauses(Pauses):
    def resume(self, cursor: Cursor, table: Table, params: Params) -> None:
        # To delete a row that is not there would lock the gap in which those of other queues may belong.
        if not looks(cursor, table) or newest(cursor, table, table.statement("paused"), {"now": None}):
            super().resume(cursor, table, params)
