"""aiomysql's cursor, with the attributes and checks that MySQLCursor adds to pymysql's cursor."""

from __future__ import annotations

from typing import Any

from aiomysql import Cursor

from tablequeue.engines.mysql.connection import LARGE, check_size


class AiomysqlCursor(Cursor):  # type: ignore[misc]  # the driver has no types
    ours = False
    limit: int | None = None

    def mogrify(self, query: str, args: Any = None) -> str:
        if args is None:
            return query
        if isinstance(args, dict):
            return query % {name: self._literal(value) for name, value in args.items()}
        return query % tuple(map(self._literal, args))

    def _literal(self, value: Any) -> Any:
        # With pymysql 1.2, aiomysql itself escapes neither sequences nor bytes.
        if isinstance(value, bytes):
            return f"x'{value.hex()}'"
        if isinstance(value, (tuple, list)):
            return f"({','.join(map(self._literal, value))})"
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
