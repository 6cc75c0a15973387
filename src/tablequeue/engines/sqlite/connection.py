"""A connection of our own to SQLite. Writers take turns by a file lock, and a flush blocks no other connection."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from tablequeue import errors
from tablequeue.engines.connection import Cursor, RawConnection
from tablequeue.engines.sqlite.inherited import file_of, inode_of, note, refuse
from tablequeue.engines.sqlite.turn import Turn, TurnNotHad

T = TypeVar("T")

# SQLite has RETURNING from 3.35 on, STRICT from 3.37 on.
OLDEST = (3, 37, 0)

FULL = 2
# Seconds that a transaction waits for its turn. If 64 processes write all the time, each waits for half a second.
PATIENCE = 10.0

# macOS has no fdatasync; SQLite itself calls fsync there.
fdatasync = getattr(os, "fdatasync", os.fsync)


class OwnCursor(sqlite3.Cursor):
    """A cursor of a connection of our own."""

    ours = True
    flushed = False
    """Whether a commit is on the disk when the call returns, flushed by us or by SQLite."""


class SQLiteConnection(RawConnection):
    """A transaction waits for its turn, then takes SQLite's lock. Its commit is flushed after both are released.

    A transaction waits at most PATIENCE seconds for its turn, because the process whose turn it is may have been
    stopped. Then it begins out of turn: SQLite's own lock keeps the database consistent. If that lock is refused too,
    the error names the process.

    `flushes`: with synchronous=FULL, SQLite flushes each commit while all other writers wait for the lock. So it runs
    with NORMAL, and the WAL is flushed here, after the unlock and before the call returns. A flush covers everything
    that was written before it, so the commits of others that the call has seen are on the disk too. The flushes of
    several processes run in parallel. Rejected: one shared flush for all waiting processes, which was not faster.

    The first transaction sets the database to WAL mode, if it is not. A connection that only reads does not change the
    mode. This is done in turn, because SQLite refuses some of many processes that do it at once.
    """

    look_after = -1.0  # always: the file may have been deleted

    def __init__(self, dbapi: Any, cursor: Cursor, path: str) -> None:
        super().__init__(dbapi, cursor)
        self._inode = inode_of(path)
        # If the caller's Engine sets a lower level of synchronous, it stays so.
        cursor.flushed = _pragma(cursor, "synchronous") >= FULL
        self.flushes = False
        self._path = path
        self._is_wal = False
        if _pragma(cursor, "journal_mode") == "wal":
            self._enter_wal()
        self._turn = Turn(path)
        self._wal: int | None = None

    def transact(self, work: Callable[[], T]) -> T:
        try:
            result = self._turn.within(PATIENCE, partial(super().transact, work))
        except TurnNotHad:
            result = self._out_of_turn(work)
        if self.flushes:
            self._flush()
        return result

    def begin(self) -> None:
        if not self._is_wal and _pragma(self.cursor, "journal_mode = wal") == "wal":
            self._enter_wal()
        self.cursor.execute("begin immediate")

    def rollback(self) -> None:
        # SQLite rolls back by itself if the disk is full.
        if self.dbapi.in_transaction:
            self.cursor.execute("rollback")

    def is_open(self) -> bool:
        """Return whether its file still has its name: what is written to a deleted file is gone with the process."""
        return inode_of(self._path) == self._inode

    def close(self) -> None:
        self.dbapi.close()
        self._turn.close()
        self._close_wal()

    def forget(self) -> None:
        self._turn.forget()
        self._close_wal()

    # -- private -----------------------------------------------------------------------------------------------------

    def _enter_wal(self) -> None:
        self._is_wal = True
        if self.cursor.flushed:
            self.cursor.execute("pragma synchronous = normal")
            self.flushes = True

    def _close_wal(self) -> None:
        if self._wal is not None:
            os.close(self._wal)
        self._wal = None

    def _out_of_turn(self, work: Callable[[], T]) -> T:
        try:
            return super().transact(work)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            raise errors.Locked(
                f"{self._turn.holder()} has been writing to the SQLite database for {PATIENCE:g} s and longer.",
                "Have it go on (kill -CONT), or end it; nothing was changed.",
            ) from error

    def _flush(self) -> None:
        try:
            if self._wal is None:
                # The file stays the same while the connection is open: only the last connection removes it.
                self._wal = os.open(f"{self._path}-wal", os.O_RDWR | os.O_CLOEXEC)
            fdatasync(self._wal)
        except OSError as error:
            raise errors.DatabaseError(
                f"The disk of the SQLite database failed after the commit: {error.strerror}.",
                "Check the disk: the commit took effect, but a power cut may undo it.",
            ) from error


def adopt(dbapi: Any) -> SQLiteConnection:
    if sqlite3.sqlite_version_info < OLDEST:
        raise errors.DatabaseError(
            f"This Python has SQLite {sqlite3.sqlite_version}; tablequeue needs {'.'.join(map(str, OLDEST))}.",
            "Use a newer Python, or one built against a newer SQLite.",
        )
    dbapi.isolation_level = None
    dbapi.text_factory = str
    cursor = dbapi.cursor(OwnCursor)
    cursor.row_factory = None
    # Before the schema is read: its checks use json_valid, which some versions of SQLite do not trust.
    cursor.execute("pragma trusted_schema = on")
    path = file_of(cursor)
    if not path:
        raise errors.BadUrl(
            "An in-memory SQLite database belongs to one connection alone, and dies with it.",
            "Name a file: sqlite:///work.db, for tests in a temporary folder.",
        )
    refuse(path)
    note(path)
    return SQLiteConnection(dbapi, cursor, path)


@contextmanager
def atomic(cursor: Cursor) -> Iterator[None]:
    """Run all of the block's statements or none, even if a caller's transaction continues after our error."""
    cursor.execute("savepoint tablequeue")
    try:
        yield
    except Exception:
        with suppress(sqlite3.Error):  # SQLite rolls back the whole transaction by itself if the disk is full
            cursor.execute("rollback to tablequeue")
            cursor.execute("release tablequeue")
        raise
    cursor.execute("release tablequeue")


def plain_cursor(dbapi: Any) -> Cursor:
    """Return a cursor that yields tuples, whatever the row factory of the caller's connection."""
    cursor = dbapi.cursor()
    cursor.row_factory = None
    return cursor


def _pragma(cursor: Cursor, words: str) -> Any:
    return cursor.execute(f"pragma {words}").fetchone()[0]
