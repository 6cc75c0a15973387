"""The operations that differ on SQL Server by a few lines."""

from __future__ import annotations

import json

from tablequeue.engines.batches import Batches
from tablequeue.engines.connection import Cursor
from tablequeue.engines.dependencies import Dependencies
from tablequeue.engines.moving import Moving
from tablequeue.engines.mssql.connection import atomic, unless_locked
from tablequeue.engines.mssql.steps import STEP, steps_of, text_of
from tablequeue.engines.params import Params
from tablequeue.engines.progress import ProgressReports
from tablequeue.engines.reads import Reads
from tablequeue.engines.rows import EndedRow, OpenBatchRow
from tablequeue.engines.table import Table, Tables
from tablequeue.engines.task_results import TaskResults
from tablequeue.engines.texts import Row


class SQLServerBatches(Batches):
    def open_batches(self, cursor: Cursor, table: Table, params: Params) -> list[OpenBatchRow]:
        looked = super().open_batches
        return unless_locked(cursor, lambda: looked(cursor, table, params), [])


class SQLServerDependencies(Dependencies):
    def add_dependencies(self, cursor: Cursor, table: Table, params: Params) -> None:
        rows = params["rows"]
        for start in range(0, len(rows), STEP):
            self._run(cursor, table, "add_dependencies", {"rows": json.dumps(rows[start : start + STEP])})

    def ended_dependencies(self, cursor: Cursor, table: Table, params: Params) -> list[EndedRow]:
        looked = super().ended_dependencies
        return unless_locked(cursor, lambda: looked(cursor, table, params), [])


class SQLServerMoving(Moving):
    def _each(self, cursor: Cursor, table: Table, operation: str, params: Params) -> None:
        """Run a statement for some of `rows` at a time, as JSON."""
        rows = [row | {"payload": text_of(row["payload"])} if "payload" in row else row for row in params["rows"]]
        for step in steps_of(rows, lambda row: len(row.get("payload", ""))):
            self._run(cursor, table, operation, {"rows": json.dumps(step, ensure_ascii=False)})


class SQLServerProgress(ProgressReports):
    def forget_progress(self, cursor: Cursor, table: Table, params: Params) -> int:
        forgotten = super().forget_progress
        return unless_locked(cursor, lambda: forgotten(cursor, table, params), 0)


class SQLServerReads(Reads):
    def of_many(self, cursor: Cursor, table: Tables, params: Params) -> list[list[Row]]:
        """Read them one by one: a read begins with declarations, so it cannot be a part of a statement."""
        return [self._rows(cursor, each, params["operation"], params) for each in table.all]


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
