"""The base of the parts of an engine, which run the statements of named texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tablequeue.engines.connection import Cursor
from tablequeue.engines.operation import inherit
from tablequeue.engines.table import Statements
from tablequeue.engines.texts import Row


def old_and_new(rows: Sequence[Row]) -> tuple[list[int], list[int]]:
    """Return the old and the new ids of rows of `move`: an id, and whether it is new."""
    old, new = (sorted(row[0] for row in rows if bool(row[1]) is is_new) for is_new in (False, True))
    return old, new


class Part:
    """A group of an engine's operations. It has no state of its own: the state of a queue is in its `Table`.

    Each operation takes a cursor, the queue's table and the parameters of its statements; see operation.py.
    """

    def __init_subclass__(cls) -> None:
        inherit(cls)

    def _run(self, cursor: Cursor, table: Statements, operation: str, params: Mapping[str, Any]) -> None:
        """Run the statements of a text in turn. The cursor has the result of the last one."""
        for statement in table.statements(operation):
            cursor.execute(statement, params)

    def _rows(self, cursor: Cursor, table: Statements, operation: str, params: Mapping[str, Any]) -> list[Row]:
        self._run(cursor, table, operation, params)
        return cursor.fetchall()

    def _row(self, cursor: Cursor, table: Statements, operation: str, params: Mapping[str, Any]) -> Any:
        """Return the first row, or None. The other rows stay in the cursor."""
        self._run(cursor, table, operation, params)
        return cursor.fetchone()
