"""aiomysql's cursor, with the attributes and checks that MySQLCursor adds to pymysql's cursor."""

from __future__ import annotations

from typing import Any

from aiomysql import Cursor

from tablequeue.engines.mysql.connection import LARGE, Mogrifying, check_size


class AiomysqlCursor(Mogrifying, Cursor):  # type: ignore[misc]  # the driver has no types
    ours = False
    limit: int | None = None
    beside: Any = None
    level: str | None = None

    def _escaped(self, value: Any) -> Any:
        # With pymysql 1.2, aiomysql itself escapes neither sequences nor bytes.
        return self.connection.escape(value)

    async def execute(self, query: Any, args: Any = None) -> int:
        if args is not None:
            query = self.mogrify(query, args)
        if len(query) > LARGE:
            if self.limit is None:
                await super().execute("select @@max_allowed_packet")
                ((self.limit,),) = await self.fetchall()
            check_size(query, self.limit)
        count: int = await super().execute(query)
        return count

    async def _show_warnings(self, connection: Any) -> None:
        """Do nothing: as in pymysql, warnings are neither fetched nor printed."""
