"""The operations that only read a queue. None of them changes or locks a message, on any engine."""

from __future__ import annotations

from typing import Any, NamedTuple

import sqlalchemy as sa

from tablequeue.engines.connection import Cursor
from tablequeue.engines.params import Params
from tablequeue.engines.parts import Part
from tablequeue.engines.rows import FailedRow, FinishedRow, LostRow, PushedRow, StatsRow
from tablequeue.engines.table import Table, Tables
from tablequeue.engines.texts import Row


class Next(NamedTuple):
    """When the next message can be popped."""

    seconds: Any
    """Seconds until then; 0 or less if a message can be popped now, None if none is expected."""
    paused: bool = False
    """Whether claims are paused: `seconds` is then the rest of the pause."""
    pushing: bool = False
    """Whether an open transaction pushes, as far as the engine knows: a message may come at any moment."""
    held: bool = False
    """Whether a message is ready that a limit of the queue holds back."""


class Reads(Part):
    # -- messages ----------------------------------------------------------------------------------------------------

    def peek(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Return the first `n` messages in `params["state"]` with ids above `after`, as COLUMNS."""
        cursor.execute(table.statement("peek", params["state"]), params)
        return cursor.fetchall()

    def until_next(self, cursor: Cursor, table: Table, params: Params) -> Next:
        return Next(*self._row(cursor, table, "until_next", params))

    def find(self, cursor: Cursor, table: Table, params: Params) -> Row | None:
        return self._row(cursor, table, "find", params)

    def in_log(self, cursor: Cursor, table: Table, params: Params) -> bool:
        """Return whether message `id` of a subscription is in the log alone, and not finished."""
        return False

    def result(self, cursor: Cursor, table: Table, params: Params) -> str | None:
        """Return the result of the finished message `id`, as JSON; None if it has none."""
        row = self._row(cursor, table, "result", params)
        return row and row[0]

    def live(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Return up to `n` live messages with ids from `low` to `high`, highest id first, as COLUMNS."""
        return self._rows(cursor, table, "live", params)

    def live_bounds(self, cursor: Cursor, table: Table, params: Params) -> Row:
        return self._rows(cursor, table, "live_bounds", params)[0]

    # -- the history -------------------------------------------------------------------------------------------------

    def history(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Return the last `n` finished messages with ids from `low` to `high`, highest id first, as COLUMNS."""
        return self._rows(cursor, table, "history", params)

    def history_bounds(self, cursor: Cursor, table: Table, params: Params) -> Row:
        """Return the lowest and the highest id in the history, or two Nones."""
        return self._row(cursor, table, "history_bounds", params)

    def finished(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Return up to `n` messages with ids from `low` to `high` finished in an interval, highest id first."""
        return self._rows(cursor, table, "finished", params)

    def finished_bounds(self, cursor: Cursor, table: Table, params: Params) -> Row:
        return self._rows(cursor, table, "finished_bounds", params)[0]

    def archivable(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Return up to `n` messages with ids from `low` to `high` finished at `until` or earlier, lowest id first.

        As COLUMNS, and the result.
        """
        return self._rows(cursor, table, "archivable", params)

    def lost(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Return the first `n` lost messages (at most once): claimed at least `age` seconds ago and not completed."""
        return self._rows(cursor, table, "lost", params)

    # -- statistics --------------------------------------------------------------------------------------------------

    def stats(self, cursor: Cursor, table: Table, params: Params) -> StatsRow:
        row = self._row(cursor, table, "stats", params)
        finished = self._row(cursor, table, "stats_history", params)[0] if table.definition.keeps_history else None
        definition = table.definition
        counted = definition.expires and definition.keeps_history
        expired = self._row(cursor, table, "stats_expired", params)[0] if counted else None
        batches = self._row(cursor, table, "stats_batches", params)[0] if definition.batches else None
        return StatsRow(*(*row, finished, None, expired, batches))

    def stats_finished(self, cursor: Cursor, table: Table, params: Params) -> list[FinishedRow]:
        """Return the last `n` messages finished less than `age` seconds ago, the last one first."""
        return [*map(FinishedRow._make, self._rows(cursor, table, "stats_finished", params))]

    def stats_failed(self, cursor: Cursor, table: Table, params: Params) -> list[FailedRow]:
        """Return the attempts that failed less than `age` seconds ago.

        Of up to `live` messages of each state in the queue, and of the last `n` that left it since then.
        """
        return [*map(FailedRow._make, self._rows(cursor, table, "stats_failed", params))]

    def stats_pushed(self, cursor: Cursor, table: Table, params: Params) -> list[PushedRow]:
        """Count the messages pushed less than `age` seconds ago by the time of the push, among the last `n` ids."""
        return [*map(PushedRow._make, self._rows(cursor, table, "stats_pushed", params))]

    def stats_lost(self, cursor: Cursor, table: Table, params: Params) -> list[LostRow]:
        """Count the messages that `lost` would find, by producer and consumer."""
        return [*map(LostRow._make, self._rows(cursor, table, "stats_lost", params))]

    def of_many(self, cursor: Cursor, table: Tables, params: Params) -> list[list[Row]]:
        """Return the rows of `params["operation"]`, a read of one statement, for each of the tables: in one statement.

        The rows of a table come in no order.
        """
        found: list[list[Row]] = [[] for _ in table.all]
        for place, *row in self._rows(cursor, table, params["operation"], params):
            found[place].append(row)
        return found

    # -- as Arrow batches --------------------------------------------------------------------------------------------

    def literal(self, cursor: Cursor, table: Table, params: Params) -> str:
        """Return the SQL text of `params["operation"]` with its values as literals, for a connection from `arrow`."""
        raise NotImplementedError

    def arrow(self, engine: sa.Engine) -> Any:
        """Return a connection that reads Arrow batches natively; None if there is no driver for it."""
        return None
