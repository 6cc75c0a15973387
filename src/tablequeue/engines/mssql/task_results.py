"""The operations on results of tasks that differ on SQL Server: JSON arrays, and transactions of several statements."""

from __future__ import annotations

import json

from tablequeue.engines.connection import Cursor
from tablequeue.engines.mssql.connection import atomic
from tablequeue.engines.params import Params
from tablequeue.engines.table import Table
from tablequeue.engines.task_results import TaskResults


class SQLServerTaskResults(TaskResults):
    def store_result(self, cursor: Cursor, table: Table, params: Params) -> None:
        if params["chord"] is None:
            super().store_result(cursor, table, params)
        else:
            with atomic(cursor):
                super().store_result(cursor, table, params)

    def read_results(self, cursor: Cursor, table: Table, params: Params) -> dict[str, bytes]:
        return super().read_results(cursor, table, params | {"keys": json.dumps([*params["keys"]])})

    def open_chord(self, cursor: Cursor, table: Table, params: Params) -> None:
        with atomic(cursor):
            super().open_chord(cursor, table, params)
