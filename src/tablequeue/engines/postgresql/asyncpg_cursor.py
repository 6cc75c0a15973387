"""asyncpg under SQLAlchemy, with the interface of a psycopg cursor: parameters, rows and errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import psycopg


class AsyncpgCursor:
    """Wraps SQLAlchemy's adapted cursor, which begins the caller's transaction; asyncpg itself would not."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._cursor = connection.cursor()

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    def execute(self, statement: str, params: Mapping[str, Any] = {}) -> AsyncpgCursor:
        text, names = _numbered(statement)
        try:
            self._cursor.execute(text, [params[name] for name in names])
        except self.connection.dbapi.Error as error:
            raise self._translated(error) from error
        return self

    def fetchone(self) -> tuple[Any, ...] | None:
        row = self._cursor.fetchone()
        return None if row is None else tuple(row)

    def fetchall(self) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._cursor.fetchall()]

    def _translated(self, error: Any) -> psycopg.Error:
        words = str(error.__cause__ or error)  # asyncpg's own
        if state := getattr(error, "sqlstate", None):
            try:
                return psycopg.errors.lookup(state)(words)
            except KeyError:
                return psycopg.DatabaseError(words)
        # Without a SQLSTATE the error is asyncpg's own: the connection is closed, or it cannot send a value.
        return (psycopg.OperationalError if self.connection.driver_connection.is_closed() else psycopg.DataError)(words)


@lru_cache(maxsize=1000)
def _numbered(statement: str) -> tuple[str, list[str]]:
    """Convert psycopg's `%(name)s` to asyncpg's `$1`. Return the statement, and the names in order."""
    names: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        return "%" if match[1] is None else f"${names.setdefault(match[1], len(names) + 1)}"

    return re.sub(r"%\((\w+)\)s|%%", number, statement), list(names)
