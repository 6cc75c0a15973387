"""The runner of operations on connections of others alone: of a migration, of Django, or of a test."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from tablequeue.engines.connection import Cursor
from tablequeue.engines.params import Params
from tablequeue.engines.runner import Runner
from tablequeue.engines.table import Statements

T = TypeVar("T")
TableT = TypeVar("TableT", bound=Statements)


class BoundRunner(Runner):
    """Runs each operation in the transaction of a connection that is given. It makes no connections of its own."""

    def run(
        self,
        operation: Callable[[Cursor, TableT, Params], T],
        table: TableT,
        params: Params,
        connection: Any = None,
        *,
        creating: bool = False,
    ) -> T:
        with self._given(connection, creating) as given:
            return self._run_within(given, operation, table, params)

    def run_beside(
        self, operation: Callable[[Cursor, TableT, Params], T], table: TableT, params: Params, connection: Any
    ) -> T:
        return self.run(operation, table, params, connection)

    def missing(self) -> str | None:
        return None

    @abstractmethod
    def _given(self, connection: Any, creating: bool) -> AbstractContextManager[Any]:
        """Return the connection for one operation, whose caller may have named a `connection`."""

    def _beside(self, connection: Any) -> None:
        return None
