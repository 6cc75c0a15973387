"""The operations of streams and bulk writes that need more than one statement on MariaDB and MySQL."""

from __future__ import annotations

from collections.abc import Sequence

import pymysql
from pymysql.constants import ER

from tablequeue.engines.connection import Cursor
from tablequeue.engines.mysql.connection import atomic, check_locked
from tablequeue.engines.mysql.fair import MySQLFair
from tablequeue.engines.mysql.limits import MySQLLimits
from tablequeue.engines.mysql.refusals import number_of
from tablequeue.engines.mysql.within import locked
from tablequeue.engines.params import Params
from tablequeue.engines.staging import Staging
from tablequeue.engines.streams import Streams
from tablequeue.engines.table import Statements, Table
from tablequeue.engines.texts import Row


class MySQLStreams(MySQLLimits, Streams):
    fair = MySQLFair()

    def _claim_stream(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        def claim(params: Params) -> list[Row]:
            if table.definition.fair:
                rows = locked(cursor, table, params)
            else:
                rows = list(self._rows(cursor, table, "stream_claim.lock", params))
            if rows:
                change = table.statement("stream_claim.change")
                check_locked(
                    cursor.execute(change, params | {"ids": table.engine.dump_ids([row[0] for row in rows])}), rows
                )
            return rows

        return [*self.claim_within(cursor, table, params, claim)] if table.definition.limited else claim(params)


class MySQLStaging(Staging):
    def writer_advance(self, cursor: Cursor, table: Statements, params: Params) -> bool:
        self._run(cursor, table, "writer_advance.make", params)
        return bool(cursor.execute(table.statement("writer_advance.advance"), params))

    def publish(self, cursor: Cursor, table: Table, params: Params) -> int:
        while True:
            try:
                return self._published(cursor, table, params)
            except pymysql.IntegrityError as error:
                # Another transaction pushed one of the keys after the statement had looked for it.
                if number_of(error) != ER.DUP_ENTRY:
                    raise

    def _published(self, cursor: Cursor, table: Table, params: Params) -> int:
        insert, *keys = table.statements(self._published_by(table, params))
        if not (keys and params["keyed"]):
            return cursor.execute(insert, params)
        with atomic(cursor):
            published = cursor.execute(insert, params)
            for statement in keys:
                cursor.execute(statement, params)
        return published

    def dump_words(self, words: Sequence[str]) -> tuple[str, ...]:
        return tuple(words)
