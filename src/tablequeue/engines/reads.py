"""The operations that only read a queue. None of them changes or locks a message, on any engine."""

from __future__ import annotations

from typing import Any, NamedTuple

import sqlalchemy as sa

from tablequeue.engines.connection import Cursor
from tablequeue.engines.operation import Effect, by_text, each, first, only, operation, row, rows
from tablequeue.engines.params import Params
from tablequeue.engines.parts import Part
from tablequeue.engines.rows import FailedRow, FinishedRow, LostRow, PushedRow, StatsRow
from tablequeue.engines.table import Table, Tables
from tablequeue.engines.texts import Row, meets


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


STATS = {
    "stats": "",
    "stats_history": "keep",
    "stats_lost": "at_most_once",
    "stats_finished": "keep",
    "stats_failed": "keep",
    "stats_pushed": "keep",
    "stats_expired": "expires keep",
    "stats_batches": "batches",
}
# Those with which `stats` counts: the other ones are operations.
COUNTED = ("stats_history", "stats_expired", "stats_batches")


class Reads(Part):
    # -- messages ----------------------------------------------------------------------------------------------------

    @operation(
        Effect.READ,
        {"range_peek_ready": "ranges", "range_peek_in_progress": "ranges", "peek": ""},
        others="range_ready",
    )
    def peek(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Return the first `n` messages in `params["state"]` with ids above `after`, as COLUMNS."""
        cursor.execute(table.statement("peek", params["state"]), params)
        return cursor.fetchall()

    until_next = by_text(Effect.READ, only(Next), texts={"until_next": "queue", "range_until_next": "subscription"})
    find = by_text(Effect.READ, row, texts={"find": "", "range_find": "subscription"})

    @operation(Effect.READ, others="range_find")
    def in_log(self, cursor: Cursor, table: Table, params: Params) -> bool:
        """Return whether message `id` of a subscription is in the log alone, and not finished."""
        return False

    result = by_text(Effect.READ, first)
    """Return the result of the finished message `id`, as JSON; None if it has none."""
    live = by_text(Effect.READ, rows, others="range_live")
    """Return up to `n` live messages with ids from `low` to `high`, highest id first, as COLUMNS."""
    live_bounds = by_text(Effect.READ, row, others="range_live_bounds")

    # -- the history -------------------------------------------------------------------------------------------------

    history = by_text(Effect.READ, rows)
    """Return the last `n` finished messages with ids from `low` to `high`, highest id first, as COLUMNS."""
    history_bounds = by_text(Effect.READ, row)
    """Return the lowest and the highest id in the history, or two Nones."""
    finished = by_text(Effect.READ, rows, others="range_finished")
    """Return up to `n` messages with ids from `low` to `high` finished in an interval, highest id first."""
    finished_bounds = by_text(Effect.READ, row, others="range_finished_bounds")
    archivable = by_text(Effect.READ, rows)
    """Return up to `n` messages with ids from `low` to `high` finished at `until` or earlier, lowest id first.

    As COLUMNS, and the result.
    """
    lost = by_text(Effect.READ, rows)
    """Return the first `n` lost messages (at most once): claimed at least `age` seconds ago and not completed."""

    # -- statistics --------------------------------------------------------------------------------------------------

    @operation(Effect.READ, STATS)
    def stats(self, cursor: Cursor, table: Table, params: Params) -> StatsRow:
        counts = self._row(cursor, table, "stats", params)
        more = {text: self._row(cursor, table, text, params)[0] for text in table.bound(_counted)}
        finished, expired, batches = (more.get(text) for text in COUNTED)
        return StatsRow(*(*counts, finished, None, expired, batches))

    stats_finished = by_text(Effect.READ, each(FinishedRow), others="range_stats_finished")
    """Return the last `n` messages finished less than `age` seconds ago, the last one first."""
    stats_failed = by_text(Effect.READ, each(FailedRow))
    """Return the attempts that failed less than `age` seconds ago.

    Of up to `live` messages of each state in the queue, and of the last `n` that left it since then.
    """
    stats_pushed = by_text(Effect.READ, each(PushedRow), others="topic_stats_pushed")
    """Count the messages pushed less than `age` seconds ago by the time of the push, among the last `n` ids."""
    stats_lost = by_text(Effect.READ, each(LostRow))
    """Count the messages that `lost` would find, by producer and consumer."""

    @operation(Effect.READ, others="holding")
    def of_many(self, cursor: Cursor, table: Tables, params: Params) -> list[list[Row]]:
        """Return the rows of `params["operation"]`, a read of one statement, for each of the tables: in one statement.

        The rows of a table come in no order.
        """
        found: list[list[Row]] = [[] for _ in table.all]
        for place, *columns in self._rows(cursor, table, params["operation"], params):
            found[place].append(columns)
        return found

    # -- as Arrow batches --------------------------------------------------------------------------------------------

    @operation(Effect.READ)
    def literal(self, cursor: Cursor, table: Table, params: Params) -> str:
        """Return the SQL text of `params["operation"]` with its values as literals, for a connection from `arrow`."""
        raise NotImplementedError

    def arrow(self, engine: sa.Engine) -> Any:
        """Return a connection that reads Arrow batches natively; None if there is no driver for it."""
        return None


def _counted(table: Table) -> list[str]:
    return [text for text in COUNTED if meets(STATS[text], table.plan.met)]
