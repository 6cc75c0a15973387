"""The operations on results of tasks that differ on SQLite: keys are sent as JSON."""

from __future__ import annotations

import json

from tablequeue.engines.connection import Cursor
from tablequeue.engines.params import Params
from tablequeue.engines.table import Table
from tablequeue.engines.task_results import TaskResults


class SQLiteTaskResults(TaskResults):
    def read_results(self, cursor: Cursor, table: Table, params: Params) -> dict[str, bytes]:
        return super().read_results(cursor, table, params | {"keys": json.dumps(params["keys"])})
