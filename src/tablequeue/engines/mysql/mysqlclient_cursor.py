"""mysqlclient's cursor, with the attributes and checks that MySQLCursor adds to pymysql's cursor."""

from __future__ import annotations

from typing import Any

import pymysql
from MySQLdb import Error
from MySQLdb.cursors import Cursor

from tablequeue.engines.mysql.connection import LARGE, Mogrifying, check_size


class MysqlclientCursor(Mogrifying, Cursor):  # type: ignore[misc]  # the driver has no types
    """A cursor on a connection of a caller, as Django's. Its errors are those of pymysql, which the engine knows."""

    ours = False
    limit: int | None = None
    beside: Any = None
    level: str | None = None

    def execute(self, query: Any, args: Any = None) -> int:
        if args is not None:
            query = self.mogrify(query, args)
        try:
            if len(query) > LARGE:
                if self.limit is None:
                    super().execute("select @@max_allowed_packet")
                    ((self.limit,),) = self.fetchall()
                check_size(query, self.limit)
            count: int = super().execute(query)
        except Error as error:
            # Both drivers have the classes of the DB-API, and the server's number as the first argument.
            raise getattr(pymysql, type(error).__name__)(*error.args) from error
        return count

    def _escaped(self, value: Any) -> Any:
        return self.connection.literal(value).decode()
