"""The reads that need more than one statement on MariaDB and MySQL."""

from __future__ import annotations

from tablequeue.engines.connection import Cursor
from tablequeue.engines.mysql.fair import until_room
from tablequeue.engines.params import Params
from tablequeue.engines.reads import Next, Reads
from tablequeue.engines.table import Table


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
