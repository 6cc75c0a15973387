"""The operations on dependencies: rows about messages that wait until others have left their queues.

A waiting message is scheduled for `FAR`. It has a row for each message that it waits for, and one more, its head, with
the time at which it was to be ready.
"""

from __future__ import annotations

from datetime import UTC, datetime

from tablequeue.engines.connection import Cursor
from tablequeue.engines.params import Params
from tablequeue.engines.parts import Part, pairs
from tablequeue.engines.rows import EndedRow
from tablequeue.engines.table import Table

FAR = datetime(9999, 1, 1, tzinfo=UTC)
"""When a message is due that waits for others."""


class Dependencies(Part):
    def add_dependencies(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Note what the messages wait for that this transaction pushes: `rows`, each with a `message`."""
        cursor.executemany(table.statement("add_dependencies"), params["rows"])

    def existing_ids(self, cursor: Cursor, table: Table, params: Params) -> set[int]:
        """Return those of `ids` that are messages of the queue or of its history."""
        return {row[0] for row in self._rows(cursor, table, "existing_ids", params)}

    def awaited_tables(self, cursor: Cursor, table: Table, params: Params) -> list[str]:
        """Return the tables for whose messages those of the queue wait; and "" if any waits, or did."""
        return [row[0] for row in self._rows(cursor, table, "awaited_tables", params)]

    def waits_for(self, cursor: Cursor, table: Table, params: Params) -> dict[int, int]:
        """Return for how many messages those of `ids` wait that wait for any."""
        return pairs(self._rows(cursor, table, "waits_for", params))

    def is_awaited(self, cursor: Cursor, table: Table, params: Params) -> bool:
        """Return whether messages of any queue wait for those of this one."""
        return bool(self._rows(cursor, table, "is_awaited", params))

    def ended_dependencies(self, cursor: Cursor, table: Table, params: Params) -> list[EndedRow]:
        """Return up to `n` rows about messages of `table.source` that have left it, or died, in `on_table`."""
        rows = self._rows(cursor, table, "ended_dependencies", params)
        return [EndedRow(id, message, bool(cancels)) for id, message, cancels in rows]

    def orphaned_dependencies(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        """Return up to `n` rows about messages of the table `on_table`, which was dropped."""
        return [row[0] for row in self._rows(cursor, table, "orphaned_dependencies", params)]

    def freed_heads(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        """Return up to `n` heads of messages that wait for nothing any more."""
        return [row[0] for row in self._rows(cursor, table, "freed_heads", params)]

    def free_heads(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Make the messages due whose heads are `ids`, unless they were rescheduled."""
        self._run(cursor, table, "free_heads", params)

    def waiting_fronts(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        """Return up to `n` heads of groups that wait for others in front of a message that was pushed before them."""
        return [row[0] for row in self._rows(cursor, table, "waiting_fronts", params)]

    def block_fronts(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Block those of `ids` that still wait for others, so that the lowest id of their group becomes its head."""
        self._run(cursor, table, "block_fronts", params)

    def forget_dependencies(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Delete the rows `ids`."""
        self._run(cursor, table, "forget_dependencies", params)
