"""The checks of `doctor`: what can endanger queues, and what to say about it."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from tablequeue.engines.base import Params, Statements, Table
from tablequeue.engines.connection import Cursor
from tablequeue.engines.operations import created_by
from tablequeue.engines.parts import Part
from tablequeue.engines.texts import Row


class Check(NamedTuple):
    """One thing that can endanger queues: a `.sql` file that returns a row for each case of it, and what to say.

    `{0}` in the cause and the remedy is the first column of the row, and so on.
    """

    operation: str
    cause: str
    remedy: str
    of_queue: bool = False
    """Whether it is about a queue; else about the database."""


class Checks(Part):
    """The checks of an engine, `all` of them."""

    def __init__(self, *checks: Check) -> None:
        self.all = checks

    def check(self, cursor: Cursor, table: Statements, params: Params) -> list[Row]:
        """Return a row for each case of `params["check"]`, the operation of one of `all`."""
        return self._rows(cursor, table, params["check"], {})

    def missing_indexes(self, cursor: Cursor, table: Table, params: Params) -> list[str]:
        """Return those that the queue was created with and that are not there, or not to be used."""
        there = {row[0] for row in self._rows(cursor, table, "indexes", {})}
        texts = [text for file in created_by(table.engine.name, table.definition) for text in table.statements(file)]
        made = re.findall(r"(?:\bindex|\bkey) (tq_\w+)", "\n".join(texts))
        return [name for name in made if name not in there]

    def read_clock(self, cursor: Cursor, table: Statements, params: Params) -> Any:
        """Return the time of the database."""
        return self._row(cursor, table, "read_clock", params)[0]
