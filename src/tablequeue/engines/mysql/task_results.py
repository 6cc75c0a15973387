"""The operations on results of tasks that differ on MariaDB and MySQL: a result and its part are one packet."""

from __future__ import annotations

from tablequeue.engines.connection import Cursor
from tablequeue.engines.mysql.packets import bound, together
from tablequeue.engines.params import Params
from tablequeue.engines.table import Table
from tablequeue.engines.task_results import TaskResults


class MySQLTaskResults(TaskResults):
    def store_result(self, cursor: Cursor, table: Table, params: Params) -> None:
        if params["chord"] is None:
            self._run(cursor, table, "store_result", params)
        else:
            texts = ("store_result", "store_part")
            together(cursor, [bound(cursor, table.statement(text), params) for text in texts])

    def read_results(self, cursor: Cursor, table: Table, params: Params) -> dict[str, bytes]:
        return super().read_results(cursor, table, params | {"keys": tuple(params["keys"])})
