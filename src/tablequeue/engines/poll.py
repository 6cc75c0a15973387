"""The listener of engines without notifications: one thread of a process polls, for all its consumers.

One statement polls all queues at which consumers wait, if the engine can join looks. A subscription needs one of its
own, and so does a queue with limits for each group. Rejected: each consumer polls for itself, which was 120 statements
a minute for every queue of an idle worker.
"""

from __future__ import annotations

from collections.abc import Collection
from threading import Event
from time import monotonic
from typing import ClassVar

from tablequeue.engines.connection import Cursor, RawConnection
from tablequeue.engines.engine import Engine
from tablequeue.engines.notifier import Listener
from tablequeue.engines.table import Table
from tablequeue.engines.walks import WHOLE

# Seconds between two polls: the first pause after a consumer begins to wait, and the maximum to which it doubles.
PAUSES = (0.01, 0.5)


class Poll(Listener):
    busy_after = 0  # `leave` costs nothing, and a consumer that works needs no poll
    tells_of_results = False
    joins: ClassVar[bool] = True
    """Whether one statement can look at several queues."""

    def __init__(self, connection: RawConnection) -> None:
        super().__init__(connection)
        self._tables: dict[str, Table] = {}
        self._pause, self._next = PAUSES[0], 0.0
        self._hurry = Event()
        self._closed = False

    def attend(self, table: Table) -> None:
        if table.of_results:
            return  # a poll looks for messages, not for results
        self._tables[table.table_name] = table
        self._hurry.set()

    def leave(self, table: Table) -> None:
        for name, one in list(self._tables.items()):
            if one.channel == table.channel:
                del self._tables[name]

    def listen(self) -> Collection[str] | None:
        while not self._closed:
            left = max(0, self._next - monotonic()) if self._tables else None
            if self._hurry.wait(left):
                self._hurry.clear()
                self._pause = PAUSES[0]
                soon = monotonic() + self._pause
                # The next poll is never postponed: with many consumers, one begins to wait all the time.
                self._next = soon if left is None else min(self._next, soon)
                continue
            tables = list(self._tables.values())
            ready = self._ready(tables) if tables else ()
            # The pause doubles even if a message was found: one that is locked for long is found by every poll.
            self._pause = min(2 * self._pause, PAUSES[1])
            self._next = monotonic() + self._pause
            if ready:
                return ready
        return None

    def close(self) -> None:
        self._closed = True
        self._hurry.set()

    def _ready(self, tables: Collection[Table]) -> Collection[str]:
        cursor = self.connection.cursor
        apart = [one for one in tables if not self.joins or one.topic is not None or one.definition.group_limited]
        ready = {table.channel for table in apart if _is_ready(cursor, table)}
        look = "select '{}', seconds from ({}) as look"
        looks = [look.format(one.channel, one.statement("until_next")) for one in tables if one not in apart]
        if looks:
            cursor.execute(" union all ".join(looks), {"now": None} | WHOLE)
            ready |= {name for name, seconds in cursor.fetchall() if seconds is not None and seconds <= 0}
        return sorted(ready)


def _is_ready(cursor: Cursor, table: Table) -> bool:
    assert isinstance(table.engine, Engine), "with its operations"
    reads = table.engine.reads if table.topic is None else table.engine.range_reads
    seconds = reads.until_next(cursor, table, {"now": None}).seconds
    return seconds is not None and seconds <= 0
