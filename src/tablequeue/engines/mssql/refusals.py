"""The errors of SQL Server, by number, with our exception, its cause and its remedy."""

from __future__ import annotations

import re
from typing import NamedTuple

from tablequeue import errors
from tablequeue.engines.granting import GRANT, granting
from tablequeue.engines.procedures import raised
from tablequeue.errors import TablequeueError

# The modules of the drivers, and their parameter styles. mssql-python takes both styles, and need not parse `?`.
DRIVERS = {"mssql_python": "qmark", "pyodbc": "qmark", "pymssql": "pyformat"}

# The last one is our own: an application lock was not granted within the lock time-out.
DEADLOCK, LOCK_TIMEOUT, NOT_GRANTED = 1205, 1222, 51000
DUPLICATES = (2601, 2627)
_OTHER_ROLLBACKS = (3960, 41302, 41305, 41325)
# A broken or refused connection, as the drivers and the server's network library report it. Not logins (4060, 18456).
_BROKEN = (-2, 53, 64, 121, 233, 596, 10053, 10054, 10060, 10061, 11001, 20002, 20003, 20006, 20009, 20047, 40613)


def is_driver_error(error: BaseException) -> bool:
    """Return whether it is a DB-API error of a driver. It is known by its name, because no driver need be installed."""
    return any(
        base.__name__ in ("Error", "ConnectionStringParseError") and base.__module__.partition(".")[0] in DRIVERS
        for base in type(error).__mro__
    )


def words_of(error: BaseException) -> str:
    """Return the server's own message, in one line."""
    words = getattr(error, "ddbc_error", None)  # mssql-python
    if words is None:
        parts = error.args[0] if error.args and isinstance(error.args[0], tuple) else error.args
        last = parts[-1] if parts else ""
        words = last.decode("utf-8", "replace") if isinstance(last, bytes) else str(last)
    words = words or str(error)
    words = words.partition("DB-Lib error message")[0] or words  # pymssql: FreeTDS adds its own
    words = re.sub(r"\[[^\]]*\]", "", words)  # [42000] [Microsoft][ODBC Driver 18 for SQL Server][SQL Server]
    words = re.sub(r" \(\d+\) \(SQL\w+\).*", "", words, flags=re.DOTALL)  # (1205) (SQLExecDirectW)
    return " ".join(words.split()).rstrip(".")


def number_of(error: BaseException) -> int:
    """Return the server's number of an error; 0 if it has none.

    pymssql has it as its first argument, pyodbc in its message. mssql-python (1.16) drops it. It keeps the name of the
    SQLSTATE and the message, which is in English on connections of our own (see `session`).
    """
    first = error.args[0] if error.args else None
    if isinstance(first, tuple) and first:
        first = first[0]
    if isinstance(first, int):
        return first
    found = re.search(r"\((-?\d+)\) \(SQL", str(error))
    if found:
        return int(found[1])
    words, state = words_of(error), getattr(error, "driver_error", "")
    return next((known.number for known in _SENTENCES if known.fits(words, state)), 0)


def refused_by(error: BaseException) -> str | None:
    """Return the name of the unique index or primary key that refused a row.

    The message has it in quotes and without a dot; the name of the table has one.
    """
    found = re.findall(r"'((?:pk_)?tq_\w+)'", words_of(error))
    return found[-1] if found else None


def state_of(error: BaseException) -> str:
    """Return the SQLSTATE of pyodbc, or mssql-python's name for it."""
    first = error.args[0] if error.args else ""
    return getattr(error, "driver_error", first if isinstance(first, str) else "")


def translated(error: Exception) -> TablequeueError | None:
    """Return the driver's error as one of ours; None if it is not an error of a driver."""
    if not is_driver_error(error):
        return None
    number, words, state = number_of(error), words_of(error), state_of(error)
    if type(error).__name__ == "ConnectionStringParseError":
        return errors.BadUrl(f"The database URL has a wrong option: {words}.", "Correct the URL after the ?.")
    if refusal := raised(number, words):
        return refusal
    for numbers, kind, cause, remedy in _ERRORS:
        if number in numbers:
            return kind(cause.format(words), granting(words, _GRANTS) if remedy is GRANT else remedy)
    if number in _BROKEN or state[:2] == "08" or state in _BROKEN_STATES or "closed connection" in words:
        return errors.ConnectionLost(
            f"The connection to SQL Server broke: {words or 'it was closed'}.",
            "Check that the server runs; whether this call took effect is not known, the next one reconnects.",
        )
    said = f" ({number})" if number else ""
    return errors.DatabaseError(
        f"SQL Server refused the statement{said}: {words}.", "Check the data and the server's error log."
    )


class _Sentence(NamedTuple):
    number: int
    pattern: str
    state: str = ""

    def fits(self, words: str, state: str) -> bool:
        return bool(self.state and self.state == state) or bool(re.search(self.pattern, words))


# What the server says of a missing right, and the statement that gives it.
_GRANTS = (
    (
        r"The (\w+) permission was denied on the object '([^']+)', database '[^']+', schema '([^']+)'",
        "grant {0} on [{2}].[{1}] to this user",
    ),
)

# For a driver without numbers: the English text of sys.messages, or the SQLSTATE where that is specific enough.
_SENTENCES = (
    _Sentence(1205, r"chosen as the deadlock victim", "Serialization failure"),
    _Sentence(1222, r"Lock request time out period exceeded"),
    _Sentence(2601, r"Cannot insert duplicate key row in object"),
    _Sentence(2627, r"Violation of (PRIMARY KEY|UNIQUE KEY) constraint"),
    _Sentence(3960, r"Snapshot isolation transaction aborted due to update conflict"),
    _Sentence(650, r"only specify the READPAST lock in the READ COMMITTED or REPEATABLE READ"),
    _Sentence(1934, r"SET options have incorrect settings"),
    _Sentence(628, r"Cannot issue SAVE TRANSACTION when there is no active transaction"),
    _Sentence(3918, r"must be executed in the context of a user transaction"),
    _Sentence(208, r"Invalid object name", "Base table or view not found"),
    _Sentence(2812, r"Could not find stored procedure"),
    _Sentence(2714, r"There is already an object named", "Base table or view already exists"),
    _Sentence(2010, r"Cannot perform alter on .* because it is an incompatible object type"),
    _Sentence(245, r"Conversion failed when converting the "),
    _Sentence(8114, r"Error converting data type "),
    _Sentence(8115, r"Arithmetic overflow error converting "),
    _Sentence(13609, r"JSON text is not properly formatted"),
    _Sentence(229, r"permission was denied"),
    _Sentence(262, r"permission denied in database"),
    _Sentence(1105, r"Could not allocate space for object"),
    _Sentence(9002, r"The transaction log for database .* is full"),
    _Sentence(3906, r"because the database is read-only|database is in read-only mode"),
    _Sentence(978, r"in an availability group and (is currently accessible|currently does not allow)"),
    _Sentence(517, r"Adding a value to a '\w+' column caused an overflow"),
    _Sentence(10928, r"limit for the database is \d+ and has been reached"),
    _Sentence(17809, r"the maximum number of '\d+' (dedicated administrator|user) connections"),
    _Sentence(18456, r"Login failed for user", "Invalid authorization specification"),
    _Sentence(4060, r"Cannot open database"),
    _Sentence(51000, r"^tablequeue: "),
    # Of the stored procedures; see their templates.
    _Sentence(51001, r"\. (Give (one of|another|fewer|an?|the|raise|ready|each)\b|Leave (it|the \w+) out$)"),
    _Sentence(51002, r"live messages? ha(s|ve) "),
    _Sentence(51003, r"The lease is lost: it expired"),
)
_BROKEN_STATES = (
    "Client unable to establish connection",
    "Connection not open",
    "Server rejected the connection",
    "Connection failure during transaction",
    "Communication link failure",
    "Connection timeout expired",
    "Connection operation failed",
    "Disconnect error",
    "HYT01",
)

# Numbers, exception, cause, remedy. {} is the server's own message.
_ERRORS: tuple[tuple[tuple[int, ...], type[TablequeueError], str, str], ...] = (
    (
        (18456, 18452, 18470, 18486, 18487, 18488, 4060, 4064, 916),
        errors.Unreachable,
        "SQL Server refused the login: {}.",
        "Check the user, the password and the database of the URL.",
    ),
    (
        (10928, 10929, 10936, 17809),
        errors.Unreachable,
        "SQL Server has no connection left: {}.",
        "Use fewer connections; or raise the limit of the server, or the tier of the database.",
    ),
    (
        (DEADLOCK, *_OTHER_ROLLBACKS),
        errors.Conflict,
        "SQL Server rolled the transaction back: {}.",
        "Roll back and try it again.",
    ),
    (
        (LOCK_TIMEOUT, NOT_GRANTED),
        errors.Locked,
        "SQL Server gave up waiting: {}.",
        "Try again when the other transaction ended.",
    ),
    (
        (650,),
        errors.BadInput,
        "The transaction's isolation level does not go with a queue: {}.",
        "Use READ COMMITTED, the default, in the transaction that you pass.",
    ),
    (
        (628, 3902, 3903, 3918),
        errors.BadInput,
        "The connection is in no transaction: {}.",
        "Begin one, or pass a connection that is not in autocommit.",
    ),
    (
        (1934, 1935),
        errors.BadInput,
        "The connection's SET options do not go with the filtered indexes of a queue: {}.",
        "Set QUOTED_IDENTIFIER, ANSI_NULLS, ANSI_PADDING, ANSI_WARNINGS, ARITHABORT and CONCAT_NULL_YIELDS_NULL on, "
        "NUMERIC_ROUNDABORT off.",
    ),
    (
        (517, 242, 241),
        errors.BadInput,
        "SQL Server cannot store a time: {}.",
        "Give a time between the years 1 and 9999.",
    ),
    (
        (2628, 8152, 511, 7139),
        errors.BadPayload,
        "SQL Server cannot store a value: {}.",
        "Make the value smaller; nothing was pushed.",
    ),
    (
        (1101, 1105, 3257, 9002, 40544),
        errors.Full,
        "The database or its log is full: {}.",
        "Make room (a log: back it up, or let it grow) and try again; nothing was changed.",
    ),
    (
        (3906, 3908, 978, 979),
        errors.ReadOnly,
        "The database is read-only: {}.",
        "Connect to the primary replica, without ApplicationIntent=ReadOnly.",
    ),
    (
        (229, 230, 262, 297, 300, 1088, 2760, 15151, 15247),
        errors.NoRights,
        "The database user may not do this: {}.",
        GRANT,
    ),
    (
        (208, 2812, 3701, 4902, 308),
        errors.QueueNotFound,
        "A table of the queue, or its index, is gone: {}.",
        errors.OPEN_AGAIN,
    ),
    (
        (245, 248, 8114, 8115, 8169, 13609),
        errors.BadInput,
        "SQL Server cannot read a value: {}.",
        "Give a value of the type that is wanted; nothing was changed.",
    ),
    (
        (2714, 1913, 2010),
        errors.QueueDiffers,
        "The database has something of that name that is not this queue: {}.",
        "Choose another queue name, or rename what is there.",
    ),
    (
        (8622,),
        errors.DatabaseError,
        "SQL Server does not find the index of a queue fit for its statement: {}.",
        "Compare the queue's indexes with `tablequeue sql create`, and the SET options of the connection.",
    ),
)
