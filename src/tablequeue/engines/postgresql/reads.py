"""The reads that differ on PostgreSQL: those of packs, and those as Arrow batches."""

from __future__ import annotations

from typing import Any

import psycopg
import sqlalchemy as sa

from tablequeue.engines.base import Params, Table
from tablequeue.engines.connection import Cursor
from tablequeue.engines.postgresql.values import Ids, IdsDumper
from tablequeue.engines.reads import Reads
from tablequeue.engines.texts import Row


class PostgreSQLReads(Reads):
    def peek(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        # A statement of its own reads the packs: with them, the index of the state does not serve the order of the ids.
        if params["state"] == "in_progress":
            return self._rows(cursor, table, "peek_in_progress", params)
        return super().peek(cursor, table, params)

    def literal(self, cursor: Cursor, table: Table, params: Params) -> str:
        statement = table.statement(params["operation"])
        client = psycopg.ClientCursor(cursor.connection)
        client.adapters.register_dumper(Ids, IdsDumper)
        return client.mogrify(statement, params)

    def arrow(self, engine: sa.Engine) -> Any:
        try:
            from tablequeue.engines.postgresql.adbc import Adbc
        except ImportError:
            return None
        return Adbc(engine)
