"""PostgreSQL's errors, translated to tablequeue's."""

from __future__ import annotations

import re

import psycopg

from tablequeue import errors
from tablequeue.engines.granting import GRANT, granting
from tablequeue.errors import TablequeueError

_NO_CONNECTION_LEFT = (
    "PostgreSQL has no connection left: {}.",
    "Use fewer connections; or raise max_connections, the limit of the role or the database, or that of the pooler.",
)
# The words of the server or a pooler that refuse a login, which come without a SQLSTATE, with cause and remedy.
_LOGINS: tuple[tuple[str, str, str], ...] = (
    (
        r"too many (clients|connections)|connection slots are reserved|no more connections allowed|max client conn",
        *_NO_CONNECTION_LEFT,
    ),
    (
        r"starting up|shutting down|not yet accepting connections|in recovery mode",
        "PostgreSQL takes no connections just now: {}.",
        "Try again in a moment.",
    ),
)
# SQLSTATE pattern, exception, cause, remedy; the first match counts. {} is the server's own message.
_ERRORS: tuple[tuple[str, type[TablequeueError], str, str], ...] = (
    (
        "22P02|22P05|2203|22021|22001|22000|54000",
        errors.BadPayload,
        "PostgreSQL cannot store a value: {}.",
        "Change the value, or use a bytes queue; nothing was pushed.",
    ),
    ("22008", errors.BadInput, "PostgreSQL cannot store a time: {}.", "Give a time between 4713 BC and 294276 AD."),
    # The errors of tablequeue's own functions. {} is the cause only; the function has the remedy in its hint.
    ("TQ001", errors.BadInput, "{}.", "Correct the options."),
    ("TQ002", errors.DuplicateKey, "{}.", "Push with another key, or have such conflicts skipped."),
    ("TQ003", errors.LeaseLost, "{}.", "Make the lease longer than the work, or extend it in time."),
    ("53100", errors.Full, "The disk of the PostgreSQL server is full: {}.", "Free some space and try again."),
    ("53300", errors.Unreachable, *_NO_CONNECTION_LEFT),
    ("25006", errors.ReadOnly, "The PostgreSQL server is read-only: {}.", "Connect to the primary server."),
    # The server reports that the search path has no schema only when a table is created.
    ("3F000", errors.NoRights, "PostgreSQL has no schema for the queues: {}.", "Name one that the user may use."),
    ("42501", errors.NoRights, "The database user may not do this: {}.", GRANT),
    ("40001|40P01", errors.Conflict, "PostgreSQL rolled the transaction back: {}.", "Roll back and try it again."),
    ("55P03", errors.Locked, "PostgreSQL gave up waiting: {}.", "Try again when the other transaction ended."),
    (
        "57014",
        errors.Locked,
        "PostgreSQL ended the statement: {}.",
        "Raise statement_timeout, for the role or in the URL, if it ended it; then try again.",
    ),
    (
        "25P02",
        errors.DatabaseError,
        "The transaction of the connection had failed before: {}.",
        "Roll it back first.",
    ),
    ("42P01|42883", errors.QueueNotFound, "A table or function of the queue is gone: {}.", errors.OPEN_AGAIN),
    (
        "42P07|42710|23505",
        errors.QueueDiffers,
        "The database has something of that name that is not this queue: {}.",
        "Choose another queue name, or rename what is there.",
    ),
    (
        "57P0|08|25P03",
        errors.ConnectionLost,
        "PostgreSQL closed the connection: {}.",
        "Check that the server runs; whether this call took effect is not known, the next one reconnects.",
    ),
)


# What the server says of a missing right, and the statement that gives it.
_GRANTS = (
    (r"permission denied for (?:table|view|relation) (.+)", "grant select, insert, update, delete on {} to this user"),
    (r"permission denied for sequence (.+)", "grant usage on sequence {} to this user"),
    (r"permission denied for (?:function|procedure) (.+)", "grant execute on routine {} to this user"),
    (r"permission denied for schema (.+)", "grant usage, create on schema {} to this user"),
    (r"permission denied for database (.+)", "grant create on database {} to this user"),
)


def translated(error: Exception) -> TablequeueError | None:
    """Return the driver's error as one of ours; None if it is not an error of the driver."""
    if not isinstance(error, psycopg.Error):
        return None
    state = error.sqlstate or ""
    # In one line: the driver's own messages may have several.
    words = " ".join((error.diag.message_primary or str(error)).split()).rstrip(".")
    for pattern, kind, cause, remedy in _ERRORS:
        if re.match(pattern, state):
            return kind(cause.format(words), granting(words, _GRANTS) if remedy is GRANT else remedy)
    if isinstance(error, psycopg.OperationalError) and not state:
        for pattern, cause, remedy in _LOGINS:
            if re.search(pattern, words, re.IGNORECASE):
                return errors.Unreachable(cause.format(words), remedy)
        return errors.ConnectionLost(
            f"The connection to PostgreSQL broke: {words}.",
            "Check that the server runs; whether this call took effect is not known, the next one reconnects.",
        )
    return errors.DatabaseError(f"PostgreSQL refused the statement: {words}.", "Check the data and the server log.")


def is_transient(error: Exception) -> bool:
    """Return whether the server rolled back our transaction and it can be tried again."""
    if not isinstance(error, psycopg.Error):
        return False
    if error.sqlstate == "23505":  # two transactions promoted in the same group at once, or used the same key
        return (error.diag.constraint_name or "").endswith(("__front", "__key"))
    return error.sqlstate in ("40001", "40P01")
