"""The operations on results of tasks that differ on PostgreSQL: one statement, which notifies those who wait."""

from __future__ import annotations

from tablequeue.engines.connection import Cursor
from tablequeue.engines.params import Params
from tablequeue.engines.postgresql.messages import Notifying
from tablequeue.engines.table import Table
from tablequeue.engines.task_results import TaskResults


class PostgreSQLTaskResults(Notifying, TaskResults):
    def store_result(self, cursor: Cursor, table: Table, params: Params) -> None:
        self._rows(cursor, table, "store_result", params)
