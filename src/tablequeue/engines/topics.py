"""The operations on a topic: pushes to its log, and the positions of its messages."""

from __future__ import annotations

from typing import NoReturn

from tablequeue.engines.connection import Cursor
from tablequeue.engines.messages import Messages
from tablequeue.engines.operation import Effect, by_text, first, only, operation, rows
from tablequeue.engines.params import Params
from tablequeue.engines.rows import BoundsRow, SizeRow
from tablequeue.engines.table import Table
from tablequeue.errors import BadInput


class Topics(Messages):
    """Pushes to a log. It has no state for each message, so the other operations on messages do not exist there."""

    def push(self, cursor: Cursor, table: Table, params: Params) -> int:
        return self._rows(cursor, table, "topic_push", params)[0][0]

    def claim(self, cursor: Cursor, table: Table, params: Params) -> NoReturn:
        raise BadInput(f"{table.name!r} is a topic.", f"Pop from a subscription, such as '{table.name}/mail'.")

    take = sweep = claim

    # -- positions ---------------------------------------------------------------------------------------------------

    @operation(Effect.WRITE)
    def sequence(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Give the messages that have become visible their offsets. Wait for a session that does it just now."""

    @operation(Effect.UPKEEP)
    def close_holes(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Close holes that no transaction will fill, if it is time; most engines find out when they sequence."""

    @operation(Effect.WRITE, others="sequence_lock topic_flush")
    def settle(self, cursor: Cursor, table: Table, params: Params) -> BoundsRow:
        """Sequence all that is visible, or at least `n` messages from `start` on; return the bounds.

        The offsets below the end are on the disk: whatever crashes, each keeps its message. So a position below the end
        may be written down elsewhere.
        """
        self.sequence(cursor, table, params)
        return self.bounds(cursor, table, params)

    bounds = by_text(Effect.READ, only(BoundsRow), "topic_bounds")
    """Return the first offset that the log still has, and the one after the last."""
    trim = by_text(Effect.WRITE, only(int), "topic_trim")
    """Drop what comes before the offset `start`, as far as whole segments do. Return how much was dropped.

    Begin a new segment if the last one has `n` messages, or one that is older than `age` seconds.
    """
    size = by_text(Effect.READ, only(SizeRow), "topic_size")
    pushed_at = by_text(Effect.READ, first, "topic_pushed_at")
    """Return when the message at the offset `start` was pushed; None if it is not there."""
    topic_rows = by_text(Effect.READ, rows)
    """Return the messages at the offsets from `start` on and before `end`, as the columns of a log in arrow.py."""
