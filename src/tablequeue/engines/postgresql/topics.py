"""Topics and their subscriptions on PostgreSQL: COPY, and claims by a function, which is one round trip."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from time import monotonic

from tablequeue.engines.base import Params, Table
from tablequeue.engines.connection import Cursor
from tablequeue.engines.postgresql.connection import atomic
from tablequeue.engines.postgresql.messages import COPY_FROM, COPY_FROM_SIZE, Notifying
from tablequeue.engines.postgresql.values import copy_lines, copy_text
from tablequeue.engines.ranges import Ranges
from tablequeue.engines.texts import Row
from tablequeue.engines.topics import Topics

# Seconds between two looks of a process at all holes of a topic; or HOLES_SHARE times as long as such a look takes.
HOLES_EVERY = 0.25
HOLES_SHARE = 20


class PostgreSQLTopics(Notifying, Topics):
    def push_many(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        payloads = params["payloads"]
        small = len(payloads) < COPY_FROM and sum(map(len, payloads)) < COPY_FROM_SIZE
        if small or not hasattr(cursor, "copy"):
            return sorted(row[0] for row in self._rows(cursor, table, "topic_push_many", params))
        with atomic(cursor):
            cursor.execute(table.statement("topic_reserve"), {**params, "n": len(payloads)})
            ids, pushed_at = cursor.fetchone()
            shared = (*(params[name] for name in ("headers", "producer", "group")), pushed_at)
            rest = "".join(f"\t{copy_text(value)}" for value in shared) + "\n"
            with cursor.copy(table.statement("topic_copy")) as copy:
                for chunk in copy_lines(ids, payloads, rest):
                    copy.write(chunk)
        self.notify(cursor, table, {})
        return list(ids)

    def push_each(self, cursor: Cursor, table: Table, params: Params) -> list[int | None]:
        rows = params["rows"]
        arrays = {array: [row[name] for row in rows] for array, name in _ARRAYS.items()}
        return sorted(row[0] for row in self._rows(cursor, table, "topic_push_each", {**params, **arrays}))

    def sequence(self, cursor: Cursor, table: Table, params: Params) -> None:
        self._run(cursor, table, "sequence", {})


_ARRAYS = {"payloads": "payload", "headers": "headers", "groups": "group"}


class PostgreSQLRanges(Notifying, Ranges):
    def complete_and_claim(
        self, cursor: Cursor, table: Table, params: Params
    ) -> tuple[Sequence[int] | None, list[Row]]:
        with atomic(cursor):
            if monotonic() >= self._topic(table).next_sweep:
                # Before the completion: see create_topic, of a transaction that has its id before it sees a hole.
                self._sequence(cursor, table)
            return super().complete_and_claim(cursor, table, {**params, "durable": True})

    def _atomic(self, cursor: Cursor) -> AbstractContextManager[None]:
        return atomic(cursor)

    def _range(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        began = monotonic()
        all_holes = began >= self._topic(table).next_sweep
        values = {"durable": False, **params, "all_holes": all_holes}
        rows = self._rows(cursor, table, "range_claim", values)
        if all_holes:
            self._looked_at_all(table, began)
        return rows

    def _lock_claims(self, cursor: Cursor, table: Table) -> None:
        self._run(cursor, table, "range_wait", {})

    def _topic(self, table: Table) -> Table:
        assert table.topic is not None, "of a subscription"
        return table.topic

    def _sequence(self, cursor: Cursor, table: Table) -> None:
        began = monotonic()
        self.topics.sequence(cursor, table, {})
        self._looked_at_all(table, began)

    def _looked_at_all(self, table: Table, began: float) -> None:
        """Note that all holes were looked at."""
        self._topic(table).next_sweep = began + max(HOLES_EVERY, HOLES_SHARE * (monotonic() - began))

    def pump(self, cursor: Cursor, table: Table, params: Params) -> int:
        self.topics.sequence(cursor, table, {})
        if not self._row(cursor, table, "range_lock", {})[0]:
            return 0
        return super().pump(cursor, table, params)
