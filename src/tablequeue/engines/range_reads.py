"""The operations that only read a subscription: the detached messages, as of a queue, and those of the log, by ranges.

Of an ordered subscription the ranges have no messages: what has been pumped is in its queue.
"""

from __future__ import annotations

from datetime import UTC, datetime

from tablequeue.engines.connection import Cursor
from tablequeue.engines.operation import Effect, by_text, each, only, row, rows
from tablequeue.engines.params import Params
from tablequeue.engines.reads import Next, Reads
from tablequeue.engines.rows import FinishedRow, PositionRow, PushedRow, RangesRow, StatsRow
from tablequeue.engines.table import Table
from tablequeue.engines.texts import Row
from tablequeue.model.message import ID

# All times at which a message may have been finished.
FIRST, LAST = datetime(1, 1, 2, tzinfo=UTC), datetime(9890, 1, 1, tzinfo=UTC)


class RangeReads(Reads):
    # -- messages ----------------------------------------------------------------------------------------------------

    def peek(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        detached = super().peek(cursor, table, params)
        if params["state"] not in ("ready", "in_progress"):
            return detached
        rows = self._rows(cursor, table, f"range_peek_{params['state']}", params)
        return sorted([*detached, *rows], key=lambda row: row[ID])[: params["n"]]

    until_next = by_text(Effect.READ, only(Next), "range_until_next")

    def find(self, cursor: Cursor, table: Table, params: Params) -> Row | None:
        # In this order: a message goes from the log to the detached messages, and nothing comes back.
        return self._row(cursor, table, "range_find", params) or super().find(cursor, table, params)

    def in_log(self, cursor: Cursor, table: Table, params: Params) -> bool:
        return self._row(cursor, table, "range_find", params) is not None

    live = by_text(Effect.READ, rows, "range_live")
    live_bounds = by_text(Effect.READ, row, "range_live_bounds")

    # -- the history -------------------------------------------------------------------------------------------------

    def history(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        return self.finished(cursor, table, params)

    def history_bounds(self, cursor: Cursor, table: Table, params: Params) -> Row:
        return self.finished_bounds(cursor, table, params)

    def finished(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        if table.definition.groups:
            return super().finished(cursor, table, _at_any_time(table, params))
        return self._rows(cursor, table, "range_finished", _at_any_time(table, params))

    def finished_bounds(self, cursor: Cursor, table: Table, params: Params) -> Row:
        if table.definition.groups:
            return super().history_bounds(cursor, table, params)
        return self._rows(cursor, table, "range_finished_bounds", _at_any_time(table, params))[0]

    # -- statistics --------------------------------------------------------------------------------------------------

    position = by_text(Effect.READ, only(PositionRow), "range_position")
    """Return the offset at which the next claim begins, whether its message is still there or not."""
    progress = by_text(Effect.READ, only(RangesRow), "range_stats")
    """Count the messages of a subscription that are in the log alone."""

    def stats(self, cursor: Cursor, table: Table, params: Params) -> StatsRow:
        detached = super().stats(cursor, table, params)
        log = self.progress(cursor, table, params)
        ages = [float(age) for age in (detached.oldest_age, log.oldest_age) if age is not None]
        # What an ordered subscription has pumped waits in its queue.
        pumped = detached.ready + detached.blocked if table.definition.groups else 0
        return detached._replace(
            lag=(log.ready + pumped, max(ages, default=None) if table.definition.groups else log.oldest_age),
            ready=detached.ready + log.ready,
            in_progress=detached.in_progress + log.in_progress,
            finished=(detached.finished or 0) + log.finished,
            oldest_age=max(ages, default=None),
        )

    def stats_finished(self, cursor: Cursor, table: Table, params: Params) -> list[FinishedRow]:
        detached = super().stats_finished(cursor, table, params)
        rows = map(FinishedRow._make, self._rows(cursor, table, "range_stats_finished", params))
        return sorted([*detached, *rows], key=lambda row: row.ago)[: params["n"]]

    stats_pushed = by_text(Effect.READ, each(PushedRow), "topic_stats_pushed")

    # -- as Arrow batches --------------------------------------------------------------------------------------------

    def literal(self, cursor: Cursor, table: Table, params: Params) -> str:
        operation = params["operation"]
        if operation == "live":
            params = {**params, "operation": "range_live"}
        elif operation in ("history", "finished") and not table.definition.groups:
            params = {**_at_any_time(table, params), "operation": "range_finished"}
        return super().literal(cursor, table, params)


def _at_any_time(table: Table, params: Params) -> Params:
    """Return the parameters with an interval of times: all times, if they have none."""
    dump = table.engine.dump_time
    return {"since": dump(FIRST), "until": dump(LAST), "final": False, **params}
