"""Bulk writes from many processes on PostgreSQL: arrays that are pushed together, and messages copied into a log."""

from __future__ import annotations

from itertools import chain
from typing import Any

from tablequeue.engines.connection import Cursor
from tablequeue.engines.operation import Effect, operation
from tablequeue.engines.params import Params
from tablequeue.engines.postgresql.connection import atomic
from tablequeue.engines.postgresql.messages import Notifying
from tablequeue.engines.postgresql.values import Column
from tablequeue.engines.staging import Staging
from tablequeue.engines.table import Table
from tablequeue.errors import DatabaseError


class PostgreSQLStaging(Notifying, Staging):
    by_columns = True

    @operation(Effect.WRITE)
    def stage(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Insert a row of arrays; or copy the messages into the log, at ids that nobody reads: see `create_topic`."""
        batch = params["columns"]
        if table.definition.kind == "topic":
            self._copy(cursor, table, params, batch)
        else:
            columns = {name: Column(batch[name].to_pylist()) for name in batch.schema.names}
            self._run(cursor, table, "stage", params | columns)

    def publish(self, cursor: Cursor, table: Table, params: Params) -> int:
        if table.definition.kind == "topic":
            pushed: int = self._row(cursor, table, "publish_topic", params)[0]
        else:
            pushed = super().publish(cursor, table, params)
        self.notify(cursor, table, {})
        return pushed

    def unstage(self, cursor: Cursor, table: Table, params: Params) -> None:
        self._run(cursor, table, "topic_unstage" if table.definition.kind == "topic" else "unstage", params)

    def _published_by(self, table: Table, params: Params) -> str:
        return "publish_keyed" if params["keyed"] else super()._published_by(table, params)

    def _copy(self, cursor: Cursor, table: Table, params: Params, batch: Any) -> None:
        from tablequeue.engines.postgresql.copying import copied_lines

        runs = self._rows(cursor, table, "topic_stage_reserve", {**params, "n": batch.num_rows})
        ids = [*chain.from_iterable(range(first, last + 1) for first, last in runs)]
        with atomic(cursor):
            of_runs = {**params, "ids": [first for first, _ in runs]}
            if len(self._rows(cursor, table, "topic_stage_copied", of_runs)) < len(runs):
                raise DatabaseError("The write was aborted, or is a day old.", "Write it again.")
            with cursor.copy(table.statement("topic_stage_copy")) as copy:
                copy.write(copied_lines(ids, batch, params["producer"]))
