"""The listener of engines that tell nobody of a push: one thread of a process looks, for all its consumers.

One statement asks for all queues that are waited for. Rejected: each who waits looks for itself, which was 120
statements a minute for every queue of an idle worker.
"""

from __future__ import annotations

from collections.abc import Collection
from threading import Event
from time import monotonic

from tablequeue.engines.base import Table
from tablequeue.engines.connection import RawConnection
from tablequeue.engines.notifier import Listener

# Seconds between two looks: the first after somebody begins to wait, and what it doubles up to while nothing comes.
PAUSES = (0.01, 0.5)


class Poll(Listener):
    busy_after = 0  # to leave costs nothing, and nobody is looked for who works

    def __init__(self, connection: RawConnection) -> None:
        super().__init__(connection)
        self._tables: dict[str, Table] = {}
        self._pause, self._next = PAUSES[0], 0.0
        self._hurry = Event()
        self._closed = False

    def attend(self, table: Table) -> None:
        self._tables[table.table_name] = table
        self._hurry.set()

    def leave(self, table: Table) -> None:
        self._tables.pop(table.table_name, None)

    def listen(self) -> Collection[str] | None:
        while not self._closed:
            left = max(0, self._next - monotonic()) if self._tables else None
            if self._hurry.wait(left):
                self._hurry.clear()
                self._pause = PAUSES[0]
                soon = monotonic() + self._pause
                # Not put off: where many come and go, somebody begins to wait all the time.
                self._next = soon if left is None else min(self._next, soon)
                continue
            tables = list(self._tables.values())
            ready = self._ready(tables) if tables else ()
            # Also when something was found: what somebody has locked for long is found again and again.
            self._pause = min(2 * self._pause, PAUSES[1])
            self._next = monotonic() + self._pause
            if ready:
                return ready
        return None

    def close(self) -> None:
        self._closed = True
        self._hurry.set()

    def _ready(self, tables: Collection[Table]) -> Collection[str]:
        look = "select '{}', seconds from ({}) as look"
        looks = [look.format(table.table_name, table.statement("until_next")) for table in tables]
        self.connection.cursor.execute(" union all ".join(looks), {"now": None})
        return [name for name, seconds in self.connection.cursor.fetchall() if seconds is not None and seconds <= 0]
