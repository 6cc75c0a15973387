"""SQLite's errors, translated to tablequeue's."""

from __future__ import annotations

import errno
import sqlite3

from tablequeue import errors
from tablequeue.errors import TablequeueError

_WRITABLE = "Make the file and its folder writable for this user, or name another database."
_Refusal = tuple[type[TablequeueError], str, str]

# By SQLite's primary result code: exception, cause, remedy. {} is SQLite's own message.
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


def translated(error: Exception) -> TablequeueError | None:
    """Return the driver's error as one of ours; None if it is not an error of the driver."""
    if isinstance(error, OSError) and str(error.filename).endswith("-lock"):
        refusal = errors.Full if error.errno == errno.ENOSPC else errors.ReadOnly
        return refusal(f"The file {error.filename} cannot be written: {error.strerror}.", _WRITABLE)
    if not isinstance(error, sqlite3.Error):
        return None
    words = str(error).rstrip(".")
    # The primary code: the low byte of the extended one.
    kind, cause, remedy = _ERRORS.get((getattr(error, "sqlite_errorcode", None) or 0) & 0xFF, _OTHER)
    if "unsafe use of" in words:
        kind, cause, remedy = (
            errors.BadInput,
            "The connection does not trust the tables of queues: {}.",
            "Run pragma trusted_schema = on, before its first statement.",
        )
    elif "no such table" in words:
        kind, cause, remedy = errors.QueueNotFound, "A table of the queue is gone: {}.", errors.OPEN_AGAIN
    elif "already" in words:
        kind, cause, remedy = (
            errors.QueueDiffers,
            "The database has something of that name that is not this queue: {}.",
            "Choose another queue name, or rename what is there.",
        )
    return kind(cause.format(words), remedy)
