"""Tables of the user on MariaDB and MySQL: an upsert is two statements."""

from __future__ import annotations

from typing import Any, ClassVar

import pymysql
import sqlalchemy as sa
from pymysql.constants import ER

from tablequeue.engines.connection import Cursor
from tablequeue.engines.mysql.refusals import number_of
from tablequeue.engines.user_tables import UserTable, UserTables
from tablequeue.errors import Conflict

# Upserts that are tried while others insert the same keys.
TRIES = 5


class MySQLUserTables(UserTables):
    sets: ClassVar = "there.{0} = given.{0}"
    singles: ClassVar = (sa.FLOAT,)

    def put(self, cursor: Cursor, table: UserTable, attempts: Any, count: int) -> None:
        if not table.rows.key:
            super().put(cursor, table, attempts, count)
            return
        params = {"attempts": attempts}
        for left in reversed(range(TRIES)):
            # Rows that are found, not rows that change: SQLAlchemy sets this flag of the connection.
            there = cursor.execute(table.statement("upsert_rows.change"), params)
            try:
                if there + cursor.execute(table.statement("upsert_rows.add"), params) == count:
                    return
            except pymysql.IntegrityError as error:
                if not left or number_of(error) != ER.DUP_ENTRY:
                    raise
        raise Conflict("Others insert the same keys at the same time.", "Write the batch again.")
