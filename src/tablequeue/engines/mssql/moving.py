"""The operations of moves between databases that differ on SQL Server."""

from __future__ import annotations

import json

from tablequeue.engines.connection import Cursor
from tablequeue.engines.moving import Moving
from tablequeue.engines.mssql.steps import steps_of, text_of
from tablequeue.engines.params import Params
from tablequeue.engines.table import Table


class SQLServerMoving(Moving):
    def _each(self, cursor: Cursor, table: Table, operation: str, params: Params) -> None:
        """Run a statement for some of `rows` at a time, as JSON."""
        rows = [row | {"payload": text_of(row["payload"])} if "payload" in row else row for row in params["rows"]]
        for step in steps_of(rows, lambda row: len(row.get("payload", ""))):
            self._run(cursor, table, operation, {"rows": json.dumps(step, ensure_ascii=False)})
