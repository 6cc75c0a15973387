"""The checks of `doctor`: what can endanger queues, and the words that report it."""

from __future__ import annotations

import re
from typing import NamedTuple

from tablequeue.engines.catalogue import created_by
from tablequeue.engines.connection import Cursor
from tablequeue.engines.operation import Effect, by_text, each, first, operation
from tablequeue.engines.params import Params
from tablequeue.engines.parts import Part
from tablequeue.engines.rows import TableRow
from tablequeue.engines.table import Statements, Table
from tablequeue.engines.texts import Row


class Check(NamedTuple):
    """One thing that can endanger queues: a text that returns a row for each case, and a cause and a remedy.

    `{0}` in the cause and the remedy is the first column of the row, and so on.
    """

    operation: str
    cause: str
    remedy: str
    of_queue: bool = False
    """Whether it concerns a queue; else it concerns the database."""


class Checks(Part):
    """The checks of an engine, `all` of them."""

    def __init__(self, *checks: Check) -> None:
        self.all = checks

    @operation(Effect.READ, others="note note_staged server session place check_session")
    def check(self, cursor: Cursor, table: Statements, params: Params) -> list[Row]:
        """Return a row for each case of `params["check"]`, the operation of one of `all`."""
        return self._rows(cursor, table, params["check"], {})

    @operation(Effect.READ, others="indexes")
    def missing_indexes(self, cursor: Cursor, table: Table, params: Params) -> list[str]:
        """Return the names of the queue's indexes that are missing or cannot be used."""
        usable = {row[0] for row in self._rows(cursor, table, "indexes", {})}
        texts = [one for text in created_by(table.engine.name, table.definition) for one in table.statements(text)]
        created = re.findall(rf"(?:\bindex|\bkey) ({re.escape(table.table_name)}__\w+)", "\n".join(texts))
        return [name for name in created if name not in usable]

    read_clock = by_text(Effect.READ, first, of=Statements)
    """Return the time of the database."""
    sizes = by_text(Effect.READ, each(TableRow), of=Statements)
    """Return a row for each table of the library."""
