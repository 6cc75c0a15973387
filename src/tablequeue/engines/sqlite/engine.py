"""SQLite: one writer at a time, WAL, BEGIN IMMEDIATE, and a file lock before it that makes the waiting fair."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import sqlalchemy as sa

from tablequeue import errors
from tablequeue.engines.base import Catalogue, Cursor, Params, Table
from tablequeue.engines.operations import in_autocommit
from tablequeue.engines.sqlite.checks import CHECKS
from tablequeue.engines.sqlite.connection import SQLiteHeld, hold, plain_cursor, whole
from tablequeue.engines.sqlite.file import missing, path_of
from tablequeue.engines.sqlite.inherited import refuse, refuse_inherited
from tablequeue.engines.sqlite.listener import SQLiteListener
from tablequeue.engines.streams import StreamingEngine
from tablequeue.engines.texts import Client, Row
from tablequeue.errors import TablequeueError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

# Payloads in one statement of push_many: 270,000 messages a second where a statement for each made 80,000. Of 20 to 500
# all are as fast, and so is one JSON array, which cannot hold bytes.
PUSHED_AT_ONCE = 50

# Bytes of a WAL that a checkpoint has not emptied for long: SQLite tries from 4 MB on.
LARGEST_WAL = 64 << 20


class SQLite(StreamingEngine):
    name = "sqlite"
    checks = CHECKS
    drivers = ("pysqlite",)
    async_drivers: ClassVar = {"aiosqlite": {}}
    # A heap promises no order; by id costs nothing.
    ready_index: ClassVar = {
        "heap": "id",
        "fifo": "id",
        "lifo": "id",
        "due": "due_at, id",
        "priority": "priority desc, id",
    }
    order_by: ClassVar = {**ready_index, "lifo": "id desc"}
    payload_types: ClassVar = {
        "json": "text not null check (json_valid(payload))",
        "text": "text not null",
        "bytes": "blob not null",
    }
    staged_types: ClassVar = {"json": "text", "text": "text", "bytes": "blob"}
    # The machine's clock, which is the same for every process that can open the file, in milliseconds: unixepoch
    # with fractions came with 3.42 only.
    own_clock = "cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000"
    clock = f"coalesce(:now, {own_clock})"
    client = Client(
        "sqlite3",
        "Between `begin;` and `commit;` it is all or nothing.",
        {"since": "0", "until": "1900000000000000", "bytes": "x'00ff'"},
    )
    autocommit = in_autocommit(writes=False)
    # Seconds that it waits for a program that is not tablequeue. Ours wait in turn, without a limit.
    connect_args: ClassVar = {"timeout": 10}
    has_schemas = False
    arranges = False
    sweeps_within = True
    closes_before_fork = True
    listener = SQLiteListener
    _path: str | None = ""

    def compile(self, text: str) -> str:
        return text  # sqlite3 takes :name and a dict as they are

    # -- connections and errors ------------------------------------------------------------------------------------

    def check_url(self, url: sa.URL) -> None:
        if url.database:
            refuse(url.database)

    def missing(self, sa_engine: sa.Engine) -> str | None:
        if self._path == "":
            # Once: SQLAlchemy too has put the working folder before a relative path when the Engine was made.
            self._path = path_of(sa_engine)
        return None if self._path is None else missing(self._path)

    def hold(self, dbapi: Any) -> SQLiteHeld:
        held = hold(dbapi)
        self._full = held.full
        return held

    def commits_each(self, dbapi: Any) -> bool:
        dbapi = getattr(dbapi, "driver_connection", dbapi)
        # From Python 3.12 on a connection may have `autocommit`, with which isolation_level means nothing.
        switch = getattr(dbapi, "autocommit", -1)
        commits = dbapi.isolation_level is None if switch == -1 else bool(switch)
        return commits and not dbapi.in_transaction

    def join(self, dbapi: Any) -> Cursor:
        if dbapi.text_factory is not str:
            raise errors.BadInput(
                f"The text_factory of the connection is {dbapi.text_factory!r}, by which messages cannot be read.",
                "Leave it at str.",
            )
        cursor = plain_cursor(dbapi)
        refuse_inherited(cursor)
        if not dbapi.in_transaction:
            # sqlite3 itself would begin late and deferred, and a deferred transaction that turns to writing fails
            # at once, without waiting, when another writer is ahead.
            cursor.execute("begin immediate")
        return cursor

    def translate(self, error: Exception) -> TablequeueError | None:
        if isinstance(error, OSError) and str(error.filename).endswith("-lock"):
            refusal = errors.Full if error.errno == errno.ENOSPC else errors.ReadOnly
            return refusal(f"The file {error.filename} cannot be written: {error.strerror}.", _WRITABLE)
        if not isinstance(error, sqlite3.Error):
            return None
        words = str(error).rstrip(".")
        # The primary code: the low byte of the extended one.
        kind, cause, remedy = _ERRORS.get((getattr(error, "sqlite_errorcode", None) or 0) & 0xFF, _OTHER)
        if "no such table" in words:
            kind, cause, remedy = errors.QueueNotFound, "A table of the queue is gone: {}.", "Create the queue again."
        elif "already" in words:
            kind, cause, remedy = (
                errors.QueueDiffers,
                "The database has something of that name that is not this queue: {}.",
                "Choose another queue name, or rename what is there.",
            )
        return kind(cause.format(words), remedy)

    # -- values ----------------------------------------------------------------------------------------------------

    def dump_time(self, time: datetime) -> int:
        return (time - _EPOCH) // _MICROSECOND

    def load_time(self, value: int) -> datetime:
        try:
            return _EPOCH + timedelta(microseconds=value)
        except OverflowError:
            # Of somebody's own SQL: a time before the first or after the last year that Python has.
            return (datetime.min if value < 0 else datetime.max).replace(tzinfo=UTC)

    def dump_ids(self, ids: Sequence[int]) -> str:
        return str(list(ids))  # JSON: json.dumps says the same, 1 µs later

    # -- operations ------------------------------------------------------------------------------------------------

    def lock(self, cursor: Cursor, table: Catalogue, params: Params) -> None:
        """Nothing is to be done: of the transactions of ours one writes at a time."""

    def push_many(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        payloads = params["payloads"]
        if not payloads:
            return []
        statement = table.statement("push_many")
        with whole(cursor):
            for start in range(0, len(payloads), PUSHED_AT_ONCE):
                some = payloads[start : start + PUSHED_AT_ONCE]
                named = {f"payload_{place}": payload for place, payload in enumerate(some)}
                rows = ", ".join(f"(:{name})" for name in named)
                cursor.execute(statement.replace("(:payload)", rows), params | named)
        (last,) = cursor.execute("select last_insert_rowid()").fetchone()
        return list(range(last - len(payloads) + 1, last + 1))

    def push_each(self, cursor: Cursor, table: Table, params: Params) -> list[int | None]:
        with whole(cursor):
            return [self.push(cursor, table, {**params, **row}) for row in params["rows"]]

    def take(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        if params["now"] is None:
            # Its statements must agree on what is due.
            (now,) = cursor.execute(f"select {self.clock}", params).fetchone()
            params = {**params, "now": now}
        return super().take(cursor, table, params)

    def sweep(self, cursor: Cursor, table: Table, params: Params) -> int:
        moved = super().sweep(cursor, table, params)
        if moved and table.definition.grouped:
            # The message behind a front that died may be due already, which its trigger has no clock to tell.
            moved += super().sweep(cursor, table, params)
        return moved

    def dump_words(self, words: Sequence[str]) -> str:
        return json.dumps(words)

    def check(self, cursor: Cursor, table: Catalogue, params: Params) -> list[Row]:
        rows = super().check(cursor, table, params)
        if params["check"] == "check_synchronous" and self._full:
            return []  # it is NORMAL because the flush comes after the commit, from us
        if params["check"] == "check_wal":
            # SQLite itself tells the size of its WAL only to who begins a checkpoint.
            sizes = [(path, os.path.getsize(f"{path}-wal")) for (path,) in rows if os.path.exists(f"{path}-wal")]
            return [(path, size >> 20) for path, size in sizes if size > LARGEST_WAL]
        return rows

    def find_keys(self, cursor: Cursor, table: Table, params: Params) -> dict[str, int]:
        return super().find_keys(cursor, table, {"keys": json.dumps(params["keys"])})


_WRITABLE = "Make the file and its folder writable for this user, or name another database."
_Refusal = tuple[type[TablequeueError], str, str]

# By SQLite's primary result code: exception, cause, remedy. {} is SQLite's own sentence.
_ERRORS: dict[int, _Refusal] = {
    sqlite3.SQLITE_BUSY: (
        errors.Locked,
        "Another program holds the SQLite database: {}.",
        "End its transaction, or pass connection= if it is your own; nothing was changed.",
    ),
    sqlite3.SQLITE_LOCKED: (
        errors.Locked,
        "Another connection of this program holds the SQLite database: {}.",
        "End its transaction; nothing was changed.",
    ),
    sqlite3.SQLITE_READONLY: (errors.ReadOnly, "The SQLite database cannot be written: {}.", _WRITABLE),
    sqlite3.SQLITE_PERM: (errors.ReadOnly, "The SQLite database cannot be written: {}.", _WRITABLE),
    sqlite3.SQLITE_CANTOPEN: (
        errors.Unreachable,
        "The SQLite database cannot be opened: {}.",
        "Check that the folder of the URL's path exists and that this user may write to it.",
    ),
    sqlite3.SQLITE_FULL: (
        errors.Full,
        "There is no room for the SQLite database to grow: {}.",
        "Free some space on the disk and try again; nothing was changed.",
    ),
    sqlite3.SQLITE_IOERR: (
        errors.Full,
        "The disk of the SQLite database failed: {}.",
        "Check the disk and its free space; nothing was changed.",
    ),
    sqlite3.SQLITE_NOTADB: (errors.BadUrl, "The file of the URL is not a SQLite database: {}.", "Name another file."),
    sqlite3.SQLITE_CORRUPT: (
        errors.DatabaseError,
        "The SQLite database is damaged: {}.",
        "Restore it from a copy, or save what is left with sqlite3's .recover.",
    ),
    sqlite3.SQLITE_TOOBIG: (
        errors.BadPayload,
        "The payload is larger than SQLite can store: {}.",
        "Keep it in a file or object store and push its name; nothing was pushed.",
    ),
}
_OTHER: _Refusal = (
    errors.DatabaseError,
    "SQLite refused the statement: {}.",
    "Check the data; nothing was changed.",
)
