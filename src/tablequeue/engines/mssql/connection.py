"""Connections to SQL Server: one interface to the three drivers, which share little but DB-API's method names.

The engine sends batches, not single statements. The text between two `go` lines is sent in one round trip: its
variables live until its end, and each parameter is bound once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any, TypeVar

from tablequeue import errors
from tablequeue.engines.connection import RawConnection
from tablequeue.engines.mssql.answers import decoded
from tablequeue.engines.mssql.refusals import DRIVERS, LOCK_TIMEOUT, is_driver_error, number_of

T = TypeVar("T")

# Seconds after which an idle connection is asked whether it is open: a round trip, because the drivers show no socket.
ASK_AFTER = 1.0
# The compatibility level that OPENJSON needs, of SQL Server 2016.
OLDEST_LEVEL = 130

# The isolation levels of a caller's transaction that a call refuses, by their numbers in sys.dm_exec_sessions. The text
# isolation_level answers with this column.
REFUSED_LEVEL = "refused_level"
LEVELS = {1: "READ UNCOMMITTED", 3: "REPEATABLE READ", 4: "SERIALIZABLE", 5: "SNAPSHOT"}
# Batches that nothing may stand in front of.
_ALONE = ("create ", "set ")

# With implicit transactions, as in ODBC without autocommit, SAVE TRANSACTION does not begin one (error 628), and BEGIN
# TRANSACTION would begin two. A read of a table begins exactly one.
_SAVE = "if @@trancount = 0\n    select top (0) object_id from sys.objects;\nsave transaction "
# Translations of the standard SQL of engines/callers.py. A savepoint ends with its transaction.
_SAVEPOINTS = {
    statement: translation
    for name in ("tablequeue_call", "tablequeue_call_of_several")
    for statement, translation in {
        f"savepoint {name}": f"{_SAVE}{name}",
        f"rollback to savepoint {name}": f"if xact_state() = 1 rollback transaction {name}",
    }.items()
}


class Batch(str):
    """A batch with `?` for its parameters. Its pieces and names are kept, to bind it in the style of a driver.

    A parameter that the batch casts to a uniqueidentifier is a token, and is sent in the form that SQL Server reads.
    """

    __slots__ = ("_bound", "names", "pieces", "tokens")

    names: tuple[str, ...]
    pieces: tuple[str, ...]
    tokens: frozenset[str]

    def __new__(cls, text: str) -> Batch:
        pieces = re.split(r":([a-z]\w*)", text)
        batch = super().__new__(cls, "?".join(pieces[::2]))
        batch.pieces, batch.names = tuple(pieces[::2]), tuple(pieces[1::2])
        batch.tokens = frozenset(re.findall(r"cast\(:([a-z]\w*) as uniqueidentifier\)", text))
        batch._bound = {}
        return batch

    def bind(self, params: Mapping[str, Any], style: str) -> tuple[str, Any]:
        """Return the text and the values for the driver's execute: a tuple for qmark, a dict for pyformat.

        A null is written into the text as a literal. Otherwise the ODBC drivers would ask the server for its type, one
        round trip each. That fails for a batch of several statements, and then the drivers assume a varchar, which
        cannot be converted to a varbinary even if it is null. Each batch has a few patterns of nulls, and so a few
        plans.
        """
        nulls = tuple(params[name] is None for name in self.names)
        try:
            text, names = self._bound[style, nulls]
        except KeyError:
            holder = "%({})s" if style == "pyformat" else "?"
            marks = ["null" if null else holder.format(name) for name, null in zip(self.names, nulls, strict=True)]
            text = "".join(part for pair in zip(self.pieces, [*marks, ""], strict=True) for part in pair)
            names = tuple(name for name, null in zip(self.names, nulls, strict=True) if not null)
            self._bound[style, nulls] = text, names
        values = {name: dashed(params[name]) if name in self.tokens else params[name] for name in names}
        return text, values if style == "pyformat" else tuple(values[name] for name in names)

    _bound: dict[tuple[str, tuple[bool, ...]], tuple[str, tuple[str, ...]]]


def batches_in(text: str) -> list[str]:
    """Return the batches of a text, without comments. Lines `go` separate them, as in sqlcmd."""
    bare = re.sub(r"(?m)^\s*--.*\n?", "", text)
    return [batch for part in re.split(r"(?m)^go$", bare) if (batch := part.strip().removesuffix(";"))]


def dashed(token: str) -> str:
    """Return a token in the form in which SQL Server reads a uniqueidentifier."""
    return f"{token[:8]}-{token[8:12]}-{token[12:16]}-{token[16:20]}-{token[20:]}"


class SQLServerCursor:
    """A driver's cursor that runs batches and yields the tuples of their single result.

    A batch may return counts before its rows, unless NOCOUNT is on, and a caller's connection must not be changed. An
    error of a later statement is raised only when its result is read. So each execute reads all results at once.
    """

    def __init__(self, dbapi: Any, ours: bool, first: str = "") -> None:
        self.connection = dbapi
        self._first = first
        """What the first batch begins with: a statement that may end it."""
        driver = type(dbapi).__module__.partition(".")[0]
        self.style = DRIVERS.get(driver, "qmark")
        # as_dict=False: a pymssql connection may return dictionaries by default.
        self._cursor = dbapi.cursor(as_dict=False) if driver == "pymssql" else dbapi.cursor()
        self.ours = ours
        """Whether the connection is ours, in autocommit; else a caller's, in a transaction."""
        self.in_transaction = not ours
        self._rows: list[tuple[Any, ...]] = []

    @property
    def rowcount(self) -> int:
        """The number of rows returned. Every statement that deletes rows returns them."""
        return len(self._rows)

    def execute(self, statement: str, params: Mapping[str, Any] | None = None) -> SQLServerCursor:
        self._rows = []
        if isinstance(statement, Batch):
            text, values = statement.bind(dict(params or {}), self.style)
            if self._first and not text.startswith(_ALONE):
                text, self._first = f"{self._first};\n{text}", ""
            self._cursor.execute(text, values) if values else self._cursor.execute(text)
        else:
            plain = _SAVEPOINTS.get(statement, statement)
            if plain is None:
                return self
            self._cursor.execute(plain)
        self._read()
        return self

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._rows.pop(0) if self._rows else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        rows, self._rows = self._rows, []
        return rows

    def _read(self) -> None:
        while True:
            if self._cursor.description is not None:
                names = [column[0] for column in self._cursor.description]
                if names == [REFUSED_LEVEL]:
                    ((level,),) = self._cursor.fetchall()
                    raise errors.BadInput(
                        f"The transaction of the connection is {LEVELS[level]}, where a call would lock messages of "
                        "others, or the server would refuse it.",
                        "Run SET TRANSACTION ISOLATION LEVEL READ COMMITTED in it first, or leave connection= out.",
                    )
                self._rows += decoded(self._cursor.fetchall(), names)
            if not self._cursor.nextset():
                return


class SQLServerConnection(RawConnection):
    """Begins and ends transactions by statements. The driver's autocommit switch would cost two more round trips."""

    cursor: SQLServerCursor

    def begin(self) -> None:
        self.cursor.execute("begin transaction")
        self.cursor.in_transaction = True

    def commit(self) -> None:
        self.cursor.execute("commit transaction")
        self.cursor.in_transaction = False

    def rollback(self) -> None:
        self.cursor.in_transaction = False
        # After a deadlock, and after most errors under XACT_ABORT, the transaction has already been rolled back.
        self.cursor.execute("if @@trancount > 0 rollback transaction")

    def is_open(self) -> bool:
        if monotonic() - self.used_at < ASK_AFTER:
            return True
        try:
            self.cursor.execute("select 1")
        except Exception as error:
            if not is_driver_error(error):
                raise
            return False
        return True


def adopt(dbapi: Any, batches: Iterable[str]) -> tuple[SQLServerConnection, str | None]:
    """Take over a new connection by running batches; return it with the schema of the queues.

    The last batch returns the compatibility level and the schema.
    """
    if callable(dbapi.autocommit):
        dbapi.autocommit(True)  # pymssql
    else:
        dbapi.autocommit = True
    cursor = SQLServerCursor(dbapi, ours=True)
    for batch in batches:
        cursor.execute(batch)
    level, place = cursor.fetchone() or (None, None)
    if level is None or level < OLDEST_LEVEL:
        raise errors.DatabaseError(
            f"The database's compatibility level is {level or 'not known'}; tablequeue needs "
            f"{OLDEST_LEVEL} (SQL Server 2016) or newer.",
            "Raise it with ALTER DATABASE CURRENT SET COMPATIBILITY_LEVEL, or use another database.",
        )
    return SQLServerConnection(dbapi, cursor), place


@contextmanager
def atomic(cursor: SQLServerCursor) -> Iterator[None]:
    """Run all of the block's batches or none: in a transaction, or under a savepoint in a caller's transaction.

    The savepoint is for a caller that continues after our error, which rolls back one statement only, unless the caller
    has set XACT_ABORT. A transaction of the runner needs no savepoint.
    """
    if cursor.ours and cursor.in_transaction:
        yield
        return
    cursor.execute("begin transaction" if cursor.ours else f"{_SAVE}tablequeue")
    cursor.in_transaction = True
    try:
        yield
    except Exception:
        try:
            if cursor.ours:
                cursor.execute("if @@trancount > 0 rollback transaction")
            else:
                cursor.execute("if xact_state() = 1 rollback transaction tablequeue")
        except Exception as error:
            if not is_driver_error(error):
                raise
            # The connection is gone, and with it the transaction: the first error is the one to report.
        finally:
            cursor.in_transaction = not cursor.ours
        raise
    if cursor.ours:
        cursor.execute("commit transaction")
        cursor.in_transaction = False


def unless_locked(cursor: SQLServerCursor, look: Callable[[], T], nothing: T) -> T:
    """Return what a look finds that is repeated from time to time; `nothing` if it waits in vain for a transaction.

    Without READ_COMMITTED_SNAPSHOT it waits for the rows that an open transaction has changed.
    """
    try:
        return look()
    except Exception as error:
        if cursor.in_transaction or not is_driver_error(error) or number_of(error) != LOCK_TIMEOUT:
            raise
        return nothing
