"""The operations that only look at a queue. None of them changes or locks a message, on any engine."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from tablequeue.engines.operations import created_by
from tablequeue.engines.texts import Row
from tablequeue.names import CATALOGUE

if TYPE_CHECKING:
    from tablequeue.engines.base import Catalogue, Cursor, Params, Table


class Check(NamedTuple):
    """One thing that can endanger queues: a `.sql` file that answers with a row for each case of it, and what to say.

    `{0}` in the words is the first column of the row, and so on.
    """

    operation: str
    cause: str
    remedy: str
    of_queue: bool = False
    """Whether it is about a queue; else about the database."""


class Next(NamedTuple):
    """When the next message can be popped."""

    seconds: Any
    """Until then, a number; not above 0 if one can be now, None if none is to come."""
    pushing: bool = False
    """Whether a transaction is open that pushes, as far as the engine knows: one may come at any moment."""


class Looking:
    """The part of an engine that looks, and what runs the statements of a file."""

    name: ClassVar[str]
    prefix: str
    """What comes before the name of a table: its schema and a dot, or nothing."""
    checks: ClassVar[tuple[Check, ...]] = ()

    def has_catalogue(self, cursor: Cursor, table: Catalogue, params: Params) -> bool:
        """Whether the catalogue's table is there."""
        return self.has_table(cursor, table, {"table": f"{self.prefix}{CATALOGUE}"})

    def has_table(self, cursor: Cursor, table: Catalogue, params: Params) -> bool:
        """Whether `params["table"]`, a name with its schema, is a table, as far as the user may know."""
        return bool(self._fetch(cursor, table, "has_table", params, cursor.fetchone)[0])

    def has_schema(self, cursor: Cursor, table: Catalogue, params: Params) -> bool:
        """Whether the schema of the queues is there."""
        return bool(self._rows(cursor, table, "has_schema", params)[0][0])

    def peek(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """The first `n` messages in `params["state"]` with ids above `after`, as COLUMNS."""
        cursor.execute(table.statement("peek", params["state"]), params)
        return cursor.fetchall()

    def until_next(self, cursor: Cursor, table: Table, params: Params) -> Next:
        return Next(*self._fetch(cursor, table, "until_next", params, cursor.fetchone))

    def find(self, cursor: Cursor, table: Table, params: Params) -> Row | None:
        return self._fetch(cursor, table, "find", params, cursor.fetchone)

    def stats(self, cursor: Cursor, table: Table, params: Params) -> Row:
        """Counts of the STATES in turn, the oldest ready one's age in seconds (or None), finished (or None)."""
        row = self._fetch(cursor, table, "stats", params, cursor.fetchone)
        finished = None
        if table.definition.keeps_history:
            finished = self._fetch(cursor, table, "stats_history", params, cursor.fetchone)[0]
        return (*row, finished)

    def history(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """The last `n` finished messages with ids from `low` to `high`, highest id first, as COLUMNS."""
        return self._rows(cursor, table, "history", params)

    def lost(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """The first `n` messages claimed `age` seconds ago or longer and never finished (at most once), as COLUMNS."""
        return self._rows(cursor, table, "lost", params)

    def history_bounds(self, cursor: Cursor, table: Table, params: Params) -> Row:
        """Lowest and highest id in the history, or two Nones."""
        return self._fetch(cursor, table, "history_bounds", params, cursor.fetchone)

    def stats_finished(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Of the last `n` messages finished less than `age` seconds ago, the last one first:

        producer, consumer, seconds of wait, seconds of run, attempts, and how many seconds ago.
        """
        return self._rows(cursor, table, "stats_finished", params)

    def stats_pushed(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Of the `n` messages with the highest ids, those pushed less than `age` seconds ago, summed up by moment:

        producer, how many seconds ago, how many messages.
        """
        return self._rows(cursor, table, "stats_pushed", params)

    def stats_lost(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """How many messages `lost` would find, by producer and consumer."""
        return self._rows(cursor, table, "stats_lost", params)

    # -- what endangers a queue --------------------------------------------------------------------------------------

    def check(self, cursor: Cursor, table: Catalogue, params: Params) -> list[Row]:
        """A row for each case of `params["check"]`, the operation of one of `checks`."""
        return self._rows(cursor, table, params["check"], {})

    def missing_indexes(self, cursor: Cursor, table: Table, params: Params) -> list[str]:
        """Those that the queue was created with and that are not there, or not to be used."""
        there = {row[0] for row in self._rows(cursor, table, "indexes", {})}
        texts = [text for file in created_by(self.name, table.definition) for text in table.statements(file)]
        wanted = re.findall(r"(?:\bindex|\bkey) (tq_\w+)", "\n".join(texts))
        return [name for name in wanted if name not in there]

    def read_clock(self, cursor: Cursor, table: Catalogue, params: Params) -> Any:
        """The database's clock."""
        return self._fetch(cursor, table, "read_clock", params, cursor.fetchone)[0]

    # -- private -----------------------------------------------------------------------------------------------------

    def _run(self, cursor: Cursor, table: Catalogue, operation: str, params: Params) -> None:
        """Run a file's statements in turn; the cursor is left at the last one."""
        for statement in table.statements(operation):
            cursor.execute(statement, params)

    def _rows(self, cursor: Cursor, table: Catalogue, operation: str, params: Params) -> list[Row]:
        self._run(cursor, table, operation, params)
        return cursor.fetchall()

    def _fetch(self, cursor: Cursor, table: Catalogue, operation: str, params: Params, fetch: Callable[[], Any]) -> Any:
        self._run(cursor, table, operation, params)
        return fetch()
