"""The operations of streams and bulk writes that need more than one statement on SQL Server."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tablequeue.engines.connection import Cursor
from tablequeue.engines.limits import Limits
from tablequeue.engines.mssql.fair import SQLServerFair
from tablequeue.engines.mssql.steps import claimed_in_steps, steps_of, text_of
from tablequeue.engines.params import Params
from tablequeue.engines.staging import Staging
from tablequeue.engines.streams import Streams
from tablequeue.engines.table import Table
from tablequeue.engines.texts import Row


class SQLServerStreams(Limits, Streams):
    fair = SQLServerFair()

    def _claim_stream(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        def claim(params: Params) -> list[Row]:
            return self._rows(cursor, table, "stream_claim", params)

        def claim_step(n: int) -> list[Row]:
            step = params | {"n": n}
            return [*self.claim_within(cursor, table, step, claim)] if table.definition.limited else claim(step)

        return claimed_in_steps(claim_step, params["n"])

    def stream_ids(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        return sorted(super().stream_ids(cursor, table, params))


class SQLServerStaging(Staging):
    """Stages rows with every driver.

    docs/engines/sql-server.md tells why it does not use mssql-python's Arrow reader and bulk copy.
    """

    def stage(self, cursor: Cursor, table: Table, params: Params) -> None:
        for step in steps_of(params["rows"], lambda row: len(row["payload"])):
            rows = [row | {"payload": text_of(row["payload"])} for row in step]
            self._run(cursor, table, "stage", params | {"rows": json.dumps(rows, ensure_ascii=False)})

    def publish(self, cursor: Cursor, table: Table, params: Params) -> int:
        ((pushed,),) = self._rows(cursor, table, self._published_by(table, params), params)
        if table.definition.grouped:
            self._run(cursor, table, "note_staged", params)
        return pushed

    def dump_words(self, words: Sequence[str]) -> str:
        return json.dumps(words)
