"""A connection to SQLite that is ours: the writers' turns by a file lock, and flushes that nobody else waits for."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tablequeue import errors
from tablequeue.engines.base import Cursor, Held

# RETURNING came with 3.35, STRICT with 3.37.
OLDEST = (3, 37, 0)

FULL = 2

# macOS has no fdatasync; SQLite itself calls fsync there.
fdatasync = getattr(os, "fdatasync", os.fsync)


class SQLiteHeld(Held):
    """A transaction takes the file lock, then SQLite's; its commit is flushed when both are free again.

    SQLite's own waiting (busy_timeout) sleeps and retries, so whoever comes at the right moment wins: with 64
    processes one made 1 cycle in 4 s while another made 1,500. The kernel hands a file lock out in turn, and nobody
    burns time on retries. The lock is on a file of its own, `<database>-lock`: closing any descriptor of the
    database file would drop SQLite's own locks.

    `flushes`: with synchronous=FULL, SQLite flushes each commit while all others wait for the lock. So it runs with
    NORMAL, and the WAL is flushed here, after the unlock, before the call returns. A flush covers all that was
    written before it: also what the call has seen of others is on the disk when it returns. Those of several
    processes run side by side; one flush for all who wait, by whoever comes first, was not faster.

    The first transaction sets the database to WAL, if it is not: whoever only looks at a database leaves it as it is.
    Under the lock, for when many do it at once SQLite refuses some.
    """

    def __init__(self, dbapi: Any, cursor: Cursor, path: str) -> None:
        super().__init__(dbapi, cursor)
        # An Engine of the caller's that flushes less keeps to that.
        self.full = _pragma(cursor, "synchronous") >= FULL
        """Whether commits are on the disk when a call returns, by us or by SQLite."""
        self.flushes = False
        self._path = path
        self._is_wal = False
        if _pragma(cursor, "journal_mode") == "wal":
            self._enter_wal()
        self._lock: int | None = None
        self._wal: int | None = None

    def begin(self) -> None:
        if self._lock is None:
            self._lock = os.open(f"{self._path}-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            if not self._is_wal and _pragma(self.cursor, "journal_mode = wal") == "wal":
                self._enter_wal()
            self.cursor.execute("begin immediate")
        except BaseException:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            raise

    def commit(self) -> None:
        self.cursor.execute("commit")
        self._unlock()
        if self.flushes:
            self._flush()

    def rollback(self) -> None:
        # A full disk has SQLite roll back by itself.
        if self.dbapi.in_transaction:
            self.cursor.execute("rollback")
        self._unlock()

    def close(self) -> None:
        self.dbapi.close()
        self.forget()

    def forget(self) -> None:
        for file in (self._lock, self._wal):
            if file is not None:
                os.close(file)
        self._lock = self._wal = None

    # -- private -----------------------------------------------------------------------------------------------------

    def _enter_wal(self) -> None:
        self._is_wal = True
        if self.full:
            self.cursor.execute("pragma synchronous = normal")
            self.flushes = True

    def _unlock(self) -> None:
        if self._lock is not None:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _flush(self) -> None:
        try:
            if self._wal is None:
                # The same file for as long as the connection is open: SQLite removes it with the last one only.
                self._wal = os.open(f"{self._path}-wal", os.O_RDWR | os.O_CLOEXEC)
            fdatasync(self._wal)
        except OSError as error:
            raise errors.DatabaseError(
                f"The disk of the SQLite database failed after the commit: {error.strerror}.",
                "Check the disk: a power cut may take back what was done; until then it is there.",
            ) from error


def hold(dbapi: Any) -> SQLiteHeld:
    if sqlite3.sqlite_version_info < OLDEST:
        raise errors.DatabaseError(
            f"This Python has SQLite {sqlite3.sqlite_version}; tablequeue needs {'.'.join(map(str, OLDEST))}.",
            "Use a newer Python, or one built against a newer SQLite.",
        )
    dbapi.isolation_level = None
    cursor = plain_cursor(dbapi)
    path: str = next(file for _, name, file in cursor.execute("pragma database_list") if name == "main")
    if not path:
        raise errors.BadUrl(
            "An in-memory SQLite database belongs to one connection alone, and dies with it.",
            "Name a file: sqlite:///work.db, for tests in a temporary folder.",
        )
    return SQLiteHeld(dbapi, cursor, path)


@contextmanager
def whole(cursor: Cursor) -> Iterator[None]:
    """All of the block's statements or none, also in a transaction of the caller's that goes on after our error."""
    cursor.execute("savepoint tablequeue")
    try:
        yield
    except Exception:
        with suppress(sqlite3.Error):  # a full disk has SQLite roll back the whole transaction by itself
            cursor.execute("rollback to tablequeue")
            cursor.execute("release tablequeue")
        raise
    cursor.execute("release tablequeue")


def plain_cursor(dbapi: Any) -> Cursor:
    """One that yields tuples, whatever the caller's connection yields."""
    cursor = dbapi.cursor()
    cursor.row_factory = None
    return cursor


def _pragma(cursor: Cursor, words: str) -> Any:
    return cursor.execute(f"pragma {words}").fetchone()[0]
