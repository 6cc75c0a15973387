"""Topics on SQLite: one transaction writes at a time, so the offset of a message is its id."""

from __future__ import annotations

from tablequeue.engines.connection import Cursor
from tablequeue.engines.params import Params
from tablequeue.engines.sqlite.messages import insert_many
from tablequeue.engines.table import Table
from tablequeue.engines.topics import Topics


class SQLiteTopics(Topics):
    def push_many(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        return insert_many(cursor, table.statement("topic_push_many"), params)

    def push_each(self, cursor: Cursor, table: Table, params: Params) -> list[int | None]:
        return [self.push(cursor, table, {**params, **row}) for row in params["rows"]]
