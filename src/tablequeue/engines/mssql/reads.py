"""The reads that differ on SQL Server."""

from __future__ import annotations

from tablequeue.engines.connection import Cursor
from tablequeue.engines.params import Params
from tablequeue.engines.reads import Reads
from tablequeue.engines.table import Tables
from tablequeue.engines.texts import Row


class SQLServerReads(Reads):
    def of_many(self, cursor: Cursor, table: Tables, params: Params) -> list[list[Row]]:
        """Read them one by one: a read begins with declarations, so it cannot be a part of a statement."""
        return [self._rows(cursor, each, params["operation"], params) for each in table.all]
