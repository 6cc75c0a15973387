"""The operations on dependencies that differ on SQL Server."""

from __future__ import annotations

import json

from tablequeue.engines.connection import Cursor
from tablequeue.engines.dependencies import Dependencies
from tablequeue.engines.mssql.connection import unless_locked
from tablequeue.engines.mssql.steps import STEP
from tablequeue.engines.params import Params
from tablequeue.engines.rows import EndedRow
from tablequeue.engines.table import Table


class SQLServerDependencies(Dependencies):
    def add_dependencies(self, cursor: Cursor, table: Table, params: Params) -> None:
        rows = params["rows"]
        for start in range(0, len(rows), STEP):
            self._run(cursor, table, "add_dependencies", {"rows": json.dumps(rows[start : start + STEP])})

    def ended_dependencies(self, cursor: Cursor, table: Table, params: Params) -> list[EndedRow]:
        looked = super().ended_dependencies
        return unless_locked(cursor, lambda: looked(cursor, table, params), [])
