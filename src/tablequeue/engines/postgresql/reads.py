"""The reads that differ on PostgreSQL: those of intervals, and those as Arrow batches."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Any

import sqlalchemy as sa

from tablequeue.engines.connection import Cursor
from tablequeue.engines.params import Params
from tablequeue.engines.reads import Next, Reads
from tablequeue.engines.table import Statements, Table
from tablequeue.engines.texts import Row
from tablequeue.engines.walks import WHOLE

# The reads of an interval of ids or times. Which index serves it best depends on the interval, and connections of our
# own have generic plans: so their values are literals, and each is planned.
OF_INTERVALS = frozenset(
    "live history finished finished_bounds archivable lost stats_finished stats_failed stats_pushed "
    "stats_lost range_peek_ready range_peek_in_progress range_live range_finished range_finished_bounds "
    "range_stats_finished topic_stats_pushed".split()
)


class PostgreSQLReads(Reads):
    def until_next(self, cursor: Cursor, table: Table, params: Params) -> Next:
        looks = table.walks.looks
        if params["now"] is not None or looks.allows:
            coming = self._looked(cursor, table, params | WHOLE)
            marks = params | table.walks.marks
            if _is_due(coming) and table.walks.marked and not _is_due(self._looked(cursor, table, marks)):
                table.forget_marks()  # it is below them
            return coming
        coming = self._looked(cursor, table, params | table.walks.marks)
        soon = looks.next_whole - monotonic()
        return coming._replace(seconds=soon if coming.seconds is None else min(coming.seconds, soon))

    def _looked(self, cursor: Cursor, table: Table, params: Params) -> Next:
        """Look, and note what the look finds for the marks of the next ones."""
        began, walks = monotonic(), table.walks
        highest = walks.highest
        *row, lease, last_id = self._row(cursor, table, "until_next", params)
        coming = Next(*row)
        if last_id is not None and last_id < highest:
            table.forget_marks()  # the queue was made anew: its ids began again
        elif params["now"] is None:
            walks.looks.took(began, whole=params["since_sweep"] is None and not params["low_water"])
            if lease is not None:
                walks.lease_end = began + lease
                walks.passed_over(walks.lease_end)
            if not coming.paused and (coming.seconds is None or coming.seconds > 0):
                if lease is None:  # a later claim has a later end
                    walks.lease_end = began + table.definition.lease
                if "marked" in table.plan.met:
                    walks.highest = max(walks.highest, last_id or 0)
        return coming

    def peek(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        _execute_literal(cursor, table.statement("peek", params["state"]), params)
        return cursor.fetchall()

    def literal(self, cursor: Cursor, table: Table, params: Params) -> str:
        return str(cursor.written(table.statement(params["operation"]), params))

    def _run(self, cursor: Cursor, table: Statements, operation: str, params: Mapping[str, Any]) -> None:
        if operation in OF_INTERVALS:
            _execute_literal(cursor, table.statement(operation), params)
        else:
            super()._run(cursor, table, operation, params)

    def arrow(self, engine: sa.Engine) -> Any:
        try:
            from tablequeue.engines.postgresql.adbc import Adbc
        except ImportError:
            return None
        return Adbc(engine)


def _execute_literal(cursor: Cursor, statement: str, params: Mapping[str, Any]) -> None:
    if getattr(cursor, "ours", False):
        cursor.execute(cursor.written(statement, params), prepare=False)
    else:
        cursor.execute(statement, params)


def _is_due(coming: Next) -> bool:
    return not coming.paused and coming.seconds is not None and coming.seconds <= 0
