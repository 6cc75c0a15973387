"""The operations on dependencies: rows about messages that wait until others have left their queues.

A waiting message is scheduled for `FAR`. It has a row for each message that it waits for, and one more, its head, with
the time at which it was to be ready.
"""

from __future__ import annotations

from datetime import UTC, datetime

from tablequeue.engines.connection import Cursor
from tablequeue.engines.operation import Effect, by_text, distinct, each, exists, ids, mapping, none, operation, strings
from tablequeue.engines.params import Params
from tablequeue.engines.parts import Part
from tablequeue.engines.rows import EndedRow
from tablequeue.engines.table import Table

FAR = datetime(9999, 1, 1, tzinfo=UTC)
"""When a message is due that waits for others."""


class Dependencies(Part):
    @operation(Effect.STEP)
    def add_dependencies(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Note what the messages wait for that this transaction pushes: `rows`, each with a `message`."""
        cursor.executemany(table.statement("add_dependencies"), params["rows"])

    existing_ids = by_text(Effect.READ, distinct)
    """Return those of `ids` that are messages of the queue or of its history."""
    awaited_tables = by_text(Effect.READ, strings)
    """Return the tables for whose messages those of the queue wait; and "" if any waits, or did."""
    waits_for = by_text(Effect.READ, mapping)
    """Return for how many messages those of `ids` wait that wait for any."""
    is_awaited = by_text(Effect.READ, exists)
    """Return whether messages of any queue wait for those of this one."""
    ended_dependencies = by_text(Effect.READ, each(lambda id, message, cancels: EndedRow(id, message, bool(cancels))))
    """Return up to `n` rows about messages of `table.source` that have left it, or died, in `on_table`."""
    orphaned_dependencies = by_text(Effect.READ, ids)
    """Return up to `n` rows about messages of the table `on_table`, which was dropped."""
    freed_heads = by_text(Effect.READ, ids)
    """Return up to `n` heads of messages that wait for nothing any more."""
    free_heads = by_text(Effect.UPKEEP, none)
    """Make the messages due whose heads are `ids`, unless they were rescheduled."""
    waiting_fronts = by_text(Effect.READ, ids)
    """Return up to `n` heads of groups that wait for others in front of a message that was pushed before them."""
    block_fronts = by_text(Effect.UPKEEP, none)
    """Block those of `ids` that still wait for others, so that the lowest id of their group becomes its head."""
    forget_dependencies = by_text(Effect.UPKEEP, none)
    """Delete the rows `ids`."""
