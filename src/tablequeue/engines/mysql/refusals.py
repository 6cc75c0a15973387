"""The errors of MariaDB and MySQL, by number, with our exception, its cause and its remedy."""

from __future__ import annotations

import pymysql
from pymysql.constants import CR, ER

from tablequeue import errors
from tablequeue.engines.granting import GRANT, granting
from tablequeue.engines.procedures import raised
from tablequeue.errors import TablequeueError


def translated(error: Exception) -> TablequeueError | None:
    """Return the driver's error as one of ours; None if it is not an error of the driver."""
    if not isinstance(error, pymysql.Error):
        return None
    number = number_of(error)
    words = str(error.args[-1] if error.args else error).strip().rstrip(".")
    if refusal := raised(number, words):
        return refusal
    for numbers, kind, cause, remedy in _ERRORS:
        if number in numbers:
            return kind(cause.format(words), granting(words, _GRANTS) if remedy is GRANT else remedy)
    if isinstance(error, pymysql.InterfaceError) or 2000 <= number < 2100:
        # The driver found the connection closed, or the client library raised an error of its own.
        return errors.ConnectionLost(
            f"The connection to the database broke: {words or 'it was closed'}.",
            "Check that the server runs; whether this call took effect is not known, the next one reconnects.",
        )
    return errors.DatabaseError(
        f"The database refused the statement ({number}): {words}.", "Check the data and the server log."
    )


# What the server says of a missing right, and the statement that gives it.
_GRANTS = (
    (r"(\w+(?: \w+)?) command denied to user (\S+) for table (\S+)", "grant {0} on {2} to {1}"),
    (r"(\w+) command denied to user (\S+) for routine '([^']+)'", "grant {0} on procedure {2} to {1}"),
    (r"Access denied for user (\S+) to database '([^']+)'", "grant all on {1}.* to {0}"),
)


def number_of(error: pymysql.Error) -> int:
    """Return the server's or the driver's number of an error; 0 if it has none."""
    # The driver reads the number as a signed 16-bit integer.
    return error.args[0] & 0xFFFF if error.args and isinstance(error.args[0], int) else 0


# Numbers, exception, cause, remedy. {} is the server's own message. Numbers that have no name in the driver:
# 1020 the row changed since the snapshot, 1665 statement-based binary log, 1792 read-only transaction, 1836 read-only
# mode, 1227 missing privilege, 1290 a server option forbids it, 1205 lock wait, 3024 and 1969 statement time-out,
# 3572 NOWAIT, 3819 and 4025 a CHECK constraint, 4031 the server closed an idle connection.
_ERRORS: tuple[tuple[tuple[int, ...], type[TablequeueError], str, str], ...] = (
    (
        (ER.ACCESS_DENIED_ERROR, ER.BAD_DB_ERROR),
        errors.Unreachable,
        "The database server refused the login: {}.",
        "Check the user, the password and the database of the URL.",
    ),
    (
        (CR.CR_CONN_HOST_ERROR, CR.CR_CONNECTION_ERROR, CR.CR_UNKNOWN_HOST),
        errors.Unreachable,
        "The database cannot be reached: {}.",
        "Check that the server runs, and the host and port of the URL.",
    ),
    (
        (ER.CON_COUNT_ERROR, ER.TOO_MANY_USER_CONNECTIONS, ER.USER_LIMIT_REACHED),
        errors.Unreachable,
        "The database has no connection left: {}.",
        "Use fewer connections; or raise max_connections, or the limit of the user.",
    ),
    (
        (CR.CR_SERVER_GONE_ERROR, CR.CR_SERVER_LOST, ER.SERVER_SHUTDOWN, 1927, 4031),
        errors.ConnectionLost,
        "The connection to the database broke: {}.",
        "Check that the server runs; whether this call took effect is not known, the next one reconnects.",
    ),
    (
        (ER.DATA_TOO_LONG, ER.WARN_DATA_OUT_OF_RANGE, ER.TRUNCATED_WRONG_VALUE_FOR_FIELD, 1300),
        errors.BadPayload,
        "The database cannot store a value: {}.",
        "Change the value, or use a bytes queue; nothing was pushed.",
    ),
    (
        (3819, 4025),
        errors.BadPayload,
        "The database does not take the payload for JSON: {}.",
        "MariaDB allows 31 levels and no lone surrogates: change the payload, or use a text queue; nothing was pushed.",
    ),
    (
        (ER.NET_PACKET_TOO_LARGE, 1301),
        errors.BadPayload,
        "A value is too large for the database: {}.",
        "Raise max_allowed_packet of the server, or keep the data in a file or object store and push its name.",
    ),
    (
        (ER.DATETIME_FUNCTION_OVERFLOW, ER.TRUNCATED_WRONG_VALUE),
        errors.BadInput,
        "The database cannot store a time: {}.",
        "Give a time between the years 1000 and 9999.",
    ),
    (
        (ER.DISK_FULL, ER.RECORD_FILE_FULL, 1026, 3),
        errors.Full,
        "The disk of the database server is full: {}.",
        "Free some space and try again.",
    ),
    (
        (1290, 1792, 1836, 3100),
        errors.ReadOnly,
        "The database is read-only: {}.",
        "Connect to the primary server, in a transaction that may write.",
    ),
    (
        (1419,),
        errors.NoRights,
        "The database user may not create the triggers that a queue with strict or groups has: {}.",
        "Set log_bin_trust_function_creators = 1 on the server, or create the queue as an administrator.",
    ),
    (
        (
            ER.DBACCESS_DENIED_ERROR,
            ER.TABLEACCESS_DENIED_ERROR,
            ER.COLUMNACCESS_DENIED_ERROR,
            1227,
            ER.PROCACCESS_DENIED_ERROR,
        ),
        errors.NoRights,
        "The database user may not do this: {}.",
        GRANT,
    ),
    (
        (ER.LOCK_DEADLOCK, 1020),
        errors.Conflict,
        "The database rolled the transaction back: {}.",
        "Roll back and try it again.",
    ),
    (
        (ER.TABLE_DEF_CHANGED,),
        errors.Conflict,
        "A table of the queue is newer than the snapshot of the transaction: {}.",
        "Roll back and try it again.",
    ),
    (
        (ER.LOCK_WAIT_TIMEOUT, 3572),
        errors.Locked,
        "The database gave up waiting: {}.",
        "Try again when the other transaction ended.",
    ),
    (
        (ER.QUERY_INTERRUPTED, 1969, 3024),
        errors.Locked,
        "The database ended the statement: {}.",
        "Try again. If it was a limit, raise max_statement_time of the user, or max_execution_time of MySQL.",
    ),
    (
        (ER.NO_SUCH_TABLE, ER.BAD_TABLE_ERROR),
        errors.QueueNotFound,
        "A table of the queue is gone: {}.",
        errors.OPEN_AGAIN,
    ),
    (
        (ER.TABLE_EXISTS_ERROR, 1359),
        errors.QueueDiffers,
        "The database has something of that name that is not this queue: {}.",
        "Choose another queue name, or rename what is there.",
    ),
    (
        (ER.NO_DB_ERROR,),
        errors.BadUrl,
        "The URL names no database for the queues: {}.",
        "Write mysql+pymysql://user@host/database, or give a schema.",
    ),
    (
        (1449,),
        errors.NoRights,
        "The user is gone that created the queue, and as whom its triggers run: {}.",
        "Create that user again, with select, insert, update, delete and trigger on the tables; it may be locked.",
    ),
    (
        (1665,),
        errors.DatabaseError,
        "The server's binary log does not allow this: {}.",
        "Set binlog_format to ROW or MIXED.",
    ),
)
