"""SQLite's listener: inotify reports writes to the -wal file, and SQLite tells whether a commit followed.

A push writes nothing for it. A commit writes to the -wal file before it becomes visible, and nothing after. So after a
write the listener polls `PRAGMA data_version`, which changes when the commit of another connection becomes visible.
Without inotify, as on macOS, it polls all the time. A poll reads a few bytes of shared memory and no table.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection
from select import POLLIN, poll
from time import monotonic, sleep

from tablequeue.engines.connection import RawConnection
from tablequeue.engines.notifier import Listener
from tablequeue.engines.sqlite.inherited import file_of
from tablequeue.engines.table import Table

# Seconds between two polls: BLIND without inotify, and at least COMING after a write, until its commit is visible. That
# pause grows to a quarter of the time since the write: 25 polls in a tenth of a second instead of 200. Each poll takes
# the GIL from the threads that claim and handle messages.
BLIND = 0.005
COMING = 0.0005
# Seconds after a write in which the listener expects its commit: the time of a disk flush. The waiting consumers
# find the messages of a slower commit by their next poll.
LONGEST_COMMIT = 0.1
# Seconds that poll() can wait at the least.
SHORTEST_POLL = 0.001

IN_MODIFY = 0x2
_EVENTS = 1 << 16


class SQLiteListener(Listener):
    exact = False  # it reports every commit, even our own completions; a look costs 0.03 ms, a pop takes the lock

    def __init__(self, connection: RawConnection) -> None:
        super().__init__(connection)
        path = file_of(connection.cursor)
        self._names: set[str] = set()
        self._closed, self._cutter = os.pipe()
        self._written = -LONGEST_COMMIT
        self._version = self._data_version()  # this read creates the -wal file, which stays while we are connected
        self._events = _watch(f"{path}-wal")
        # Not select(), which takes no descriptor above 1,023.
        self._sources = poll()
        for source in (self._closed, self._events):
            if source is not None:
                self._sources.register(source, POLLIN)

    def __del__(self) -> None:
        os.close(self._closed)
        os.close(self._cutter)
        if self._events is not None:
            os.close(self._events)

    def attend(self, table: Table) -> None:
        self._names.add(table.channel)

    def leave(self, table: Table) -> None:
        self._names.discard(table.channel)

    def listen(self) -> Collection[str] | None:
        while True:
            # The write read here may belong to a later commit than the next visible one. So polling ends by time only.
            passed = monotonic() - self._written
            pause = max(COMING, passed / 4) if passed < LONGEST_COMMIT else BLIND if self._events is None else None
            if pause is not None and pause < SHORTEST_POLL:
                sleep(pause)
                pause = 0
            readable = [source for source, _ in self._sources.poll(None if pause is None else pause * 1000)]
            if self._closed in readable:
                return None
            if self._events in readable:
                os.read(self._events, _EVENTS)
                self._written = monotonic()
            version = self._data_version()
            if version != self._version:
                self._version = version
                return set(self._names)

    def close(self) -> None:
        os.write(self._cutter, b"x")

    def _data_version(self) -> int:
        self.connection.cursor.execute("select 1 from sqlite_master limit 1").fetchall()
        version: int = self.connection.cursor.execute("pragma data_version").fetchone()[0]
        return version


def _watch(path: str) -> int | None:
    """Return a descriptor that becomes readable when the file is written to; None without inotify."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "inotify_init1"):
        return None
    events: int = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    if events < 0:
        return None
    if libc.inotify_add_watch(events, os.fsencode(path), IN_MODIFY) < 0:
        os.close(events)
        return None
    return events
