"""A connection of our own to a database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Cursor = Any  # a DB-API cursor: the drivers share no type
T = TypeVar("T")


class RawConnection:
    """A DB-API connection of our own, in autocommit, with its cursor. It keeps its settings until it is closed."""

    def __init__(self, dbapi: Any, cursor: Cursor) -> None:
        self.dbapi = dbapi
        self.cursor = cursor

    def transact(self, work: Callable[[], T]) -> T:
        """Do the work in a transaction. After an error the transaction stays open, and the caller rolls it back."""
        self.begin()
        result = work()
        self.commit()
        return result

    def begin(self) -> None:
        self.cursor.execute("begin")

    def commit(self) -> None:
        self.cursor.execute("commit")

    def rollback(self) -> None:
        self.cursor.execute("rollback")

    def close(self) -> None:
        self.dbapi.close()

    def forget(self) -> None:
        """In a forked child: close the files that would hold a lock of the parent. The connection stays open."""
