"""The operations of moves between databases: messages are set aside in one, and come to the other."""

from __future__ import annotations

from tablequeue.engines.columns import COLUMNS
from tablequeue.engines.connection import Cursor
from tablequeue.engines.operation import Effect, by_text, distinct, none, operation, rows
from tablequeue.engines.params import Params
from tablequeue.engines.parts import Part
from tablequeue.engines.table import Table

# The columns of the rows that `aside` returns.
ASIDE = [column for column in COLUMNS if column not in ("lease_until", "finished_at")] + ["token", "expires_at"]


class Moving(Part):
    # -- the source --------------------------------------------------------------------------------------------------

    waiting = by_text(Effect.STEP, rows)
    """Lock up to `n` messages that no consumer holds, with ids above `after`, up to `high`.

    Return their ids, groups and keys, in the order of the ids.
    """
    busy_groups = by_text(Effect.READ, distinct)
    """Return the groups that have a message in progress."""
    set_aside = by_text(Effect.STEP, none)
    """Set the messages `ids`, which are locked, aside under `token`."""
    aside = by_text(Effect.READ, rows)
    """Return up to `n` messages that were set aside, with ids above `after`, as ASIDE, by id."""
    forget_aside = by_text(Effect.WRITE, none)
    """Delete the messages `ids` from those that were set aside."""

    # -- the target --------------------------------------------------------------------------------------------------

    @operation(Effect.READ)
    def find_moved(self, cursor: Cursor, table: Table, params: Params) -> dict[tuple[int, str], int]:
        """Return those of `ids` that have come from other databases, each with its token, and their ids here."""
        return {(id, token): new for id, token, new in self._rows(cursor, table, "find_moved", params)}

    @operation(Effect.STEP)
    def put_aside(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Put the messages of `rows` where `move` finds them."""
        self._each(cursor, table, "put_aside", params)

    @operation(Effect.STEP)
    def note_moved(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Note the messages of `rows`, which have come: their `id`, `token` and `new_id`."""
        self._each(cursor, table, "note_moved", params)

    @operation(Effect.STEP)
    def put_history(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Put the messages of `rows` into the history."""
        self._each(cursor, table, "put_history", params)

    # -- private -----------------------------------------------------------------------------------------------------

    def _each(self, cursor: Cursor, table: Table, operation: str, params: Params) -> None:
        """Run a statement for each of `rows`."""
        cursor.executemany(table.statement(operation), params["rows"])
