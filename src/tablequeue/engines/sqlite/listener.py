"""SQLite's listener: the system tells of writes to the -wal file, SQLite of the commit. No push writes anything for it.

A commit writes to the -wal file before it can be seen, and nothing after: so a write begins a look at `PRAGMA
data_version`, which changes when another connection's commit is to be seen. Where the system cannot tell (macOS has no
inotify), that is looked at all the time; it reads a few bytes of shared memory and no table.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection
from select import select
from time import monotonic

from tablequeue.engines.base import Table
from tablequeue.engines.connection import RawConnection
from tablequeue.engines.notifier import Listener
from tablequeue.engines.sqlite.inherited import file_of

# Seconds between two looks where the system cannot tell of a write, and the fewest after one, while its commit is on
# the way. These grow with the time that has passed, to a quarter of it: 25 looks in a tenth of a second instead of
# 200, each of which takes the GIL from the thread that claims and from the one that handles.
BLIND = 0.005
COMING = 0.0005
# Seconds after a write in which its commit is waited for: a flush of the disk. A slower one is found by the next look
# of those who wait.
LONGEST_COMMIT = 0.1

IN_MODIFY = 0x2
_EVENTS = 1 << 16


class SQLiteListener(Listener):
    exact = False  # it hears every commit, this process's own completions too; and a look costs 0.03 ms, a pop the lock

    def __init__(self, connection: RawConnection) -> None:
        super().__init__(connection)
        path = file_of(connection.cursor)
        self._names: set[str] = set()
        self._closed, self._cutter = os.pipe()
        self._written = -LONGEST_COMMIT
        self._version = self._data_version()  # by reading it has made the -wal file, which stays while it is open
        self._events = _watch(f"{path}-wal")

    def __del__(self) -> None:
        os.close(self._closed)
        os.close(self._cutter)
        if self._events is not None:
            os.close(self._events)

    def attend(self, table: Table) -> None:
        self._names.add(table.table_name)

    def leave(self, table: Table) -> None:
        self._names.discard(table.table_name)

    def listen(self) -> Collection[str] | None:
        while True:
            # A write drained here may be of a commit after the one that is seen next, so the end is by time alone.
            passed = monotonic() - self._written
            watched = [self._closed] if self._events is None else [self._closed, self._events]
            pause = max(COMING, passed / 4) if passed < LONGEST_COMMIT else BLIND if self._events is None else None
            readable, _, _ = select(watched, [], [], pause)
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
    """A descriptor that can be read when the file was written to; None if the system has none."""
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
