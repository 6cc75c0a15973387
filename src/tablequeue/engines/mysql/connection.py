"""Connections to MariaDB and MySQL: our own, with our settings, and the caller's, which are not changed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pymysql
from pymysql.constants import COMMAND
from pymysql.constants.SERVER_STATUS import SERVER_STATUS_IN_TRANS
from pymysql.cursors import Cursor

from tablequeue import errors
from tablequeue.engines.connection import Cursor as AnyCursor
from tablequeue.engines.connection import RawConnection, is_quiet
from tablequeue.engines.look_alikes import LookAlike, look_alike
from tablequeue.engines.mysql.answers import packet_answered, watch_answers
from tablequeue.engines.silence import Watch

# The first versions with SKIP LOCKED.
OLDEST = {"MariaDB": (10, 6), "MySQL": (8, 0, 1)}

# TiDB: pingcap/tidb#69720. Vitess says so of itself, as does PlanetScale, which runs it.
LOOK_ALIKES = (
    LookAlike("tidb", "TiDB", "it reads SKIP LOCKED and locks nothing, so that two consumers get one message"),
    LookAlike("vitess|planetscale", "Vitess", "it has no triggers, and divides the tables of a queue among servers"),
)

# Number of characters from which the size of a statement is checked. A character has at most 4 bytes.
LARGE = 1 << 18
# Upper bound of the bytes of a statement besides its values.
OVERHEAD = 1 << 12

# Strict mode: a value that does not fit is an error, and is never truncated. The lock wait is short because it is
# retried (see runner.RETRIES): 55 s in all, about the server's default. A connection may be idle for 24 days. Unless
# told otherwise, MySQL cuts group_concat off after 1,024 bytes. If a client is suspended or cut off in the middle of a
# transaction, MariaDB ends the session after half of the default lease, or earlier if somebody has set that, and its
# locks are free. MySQL has no such setting (see packets.py).
# The longest that the server allows on every system.
PATIENCE = "wait_timeout = 2147483"
# The others would change what a statement does or returns; see docs/engines/mariadb.md.
SETTINGS = (
    "set session sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', session time_zone = '+00:00', "
    "session sql_select_limit = default, session sql_safe_updates = 0, session sql_auto_is_null = 0, "
    "session timestamp = default, session unique_checks = 1, session foreign_key_checks = 1, "
    "session completion_type = 0, session sql_big_selects = 1, session max_sort_length = default, "
    "session character_set_client = utf8mb4, session character_set_connection = utf8mb4, "
    "session character_set_results = utf8mb4, "
    "session innodb_lock_wait_timeout = 5, session lock_wait_timeout = 5, "
    f"session {PATIENCE}, "
    "session group_concat_max_len = 4294967295 "
    "/*M!100300 , session idle_transaction_timeout = if(@@idle_transaction_timeout between 1 and 30, "
    "@@idle_transaction_timeout, 30) */"
)
# The parameter of COM_SET_OPTION that allows several statements in a packet, as two bytes.
MULTI_STATEMENTS_ON = "\0\0"


class MySQLCursor(Cursor):  # type: ignore[misc]  # the driver has no types
    """Returns rows as tuples, whatever the connection's own cursors return.

    It refuses a statement that is too large for the server, which would close the connection in the middle of it.
    """

    ours = False
    """Whether the connection is ours, and so READ COMMITTED."""
    named_lock = False
    """Whether the creators' lock is held. The lock outlives the transaction."""
    limit: int | None = None
    beside: Callable[..., AbstractContextManager[Any]] | None = None
    """Of a caller's connection: what runs an operation beside its transaction; see `Runner.held_beside`."""
    level: str | None = None
    """The isolation level of a caller's transaction, once it was asked for; see within.py."""

    def execute(self, query: Any, args: Any = None) -> int:
        if args is not None:
            query = self.mogrify(query, args)
        if len(query) > LARGE:
            if self.limit is None:
                super().execute("select @@max_allowed_packet")
                ((self.limit,),) = self.fetchall()
            check_size(query, self.limit)
        return super().execute(query)

    def packet(self, statements: Sequence[str], params: Any) -> list[Sequence[Any]]:
        """Run several statements in one round trip. Return the rows of those that have some.

        The server does not wait between them. An error is that of the first one that fails, and the last one that runs.
        """
        results: list[Sequence[Any] | None] = []
        with packet_answered(self.connection, len(statements), results):
            self.execute(";\n".join(statements), params)
            results.append(self.fetchall() if self.description else None)
            while self.nextset():
                results.append(self.fetchall() if self.description else None)
        return [rows for rows in results if rows is not None]


def check_size(query: str | bytes, limit: int) -> None:
    size = len(query.encode("utf-8", "surrogateescape") if isinstance(query, str) else query)
    if size + OVERHEAD > limit:
        raise errors.BadPayload(
            f"A statement of {size} bytes is too large for the database, whose max_allowed_packet is {limit}.",
            "Raise max_allowed_packet of the server, or keep the data in a file or object store and push its name.",
        )


class MySQLConnection(RawConnection):
    def watch(self, watch: Watch) -> None:
        watch_answers(self.dbapi, watch)

    def commit(self) -> None:
        super().commit()
        self._unlock()

    def rollback(self) -> None:
        super().rollback()
        self._unlock()

    def is_open(self) -> bool:
        socket = self.dbapi._sock  # noqa: SLF001  (PyMySQL has no public way to it)
        return socket is not None and is_quiet(socket.fileno())

    def _unlock(self) -> None:
        if self.cursor.named_lock:
            self.cursor.execute("do release_all_locks()")
            self.cursor.execute(f"set session {PATIENCE}")
            self.cursor.named_lock = False


def adopt(dbapi: Any) -> MySQLConnection:
    check_version(dbapi.get_server_info())
    if dbapi.charset != "utf8mb4":
        dbapi.set_character_set("utf8mb4")
    dbapi.autocommit(True)
    cursor = dbapi.cursor(MySQLCursor)
    cursor.ours = True
    cursor.execute(SETTINGS)
    # REPEATABLE READ, the default, locks the gaps between rows too: claims would wait for pushes.
    cursor.execute("set session transaction isolation level read committed")
    # Here, and not as a flag of the connection: an engine of the caller's may have made it. The driver has no method.
    dbapi._execute_command(COMMAND.COM_SET_OPTION, MULTI_STATEMENTS_ON)  # noqa: SLF001
    dbapi._read_packet()  # noqa: SLF001
    return MySQLConnection(dbapi, cursor)


def check_charset(dbapi: Any) -> None:
    charset = dbapi.charset if hasattr(dbapi, "charset") else dbapi.character_set_name()
    if charset != "utf8mb4":
        # The server would replace characters that the other character set lacks by question marks.
        raise errors.BadInput(
            f"The connection's character set is {charset}, which cannot hold every message.",
            "Connect with charset=utf8mb4.",
        )


def check_session(cursor: AnyCursor, statement: str) -> None:
    """Refuse a caller's connection whose settings change what our statements do or return."""
    cursor.execute(statement)
    for name, found, good in cursor.fetchall():
        raise errors.BadInput(
            f"The setting {name} of the connection is {found}, with which statements do something else.",
            f"Run set session {name} = {good} on it.",
        )


def commits_each(connection: Any) -> bool:
    """Whether the next statement on a connection of the driver commits itself.

    mysqlclient does not know the status of the server: with it, a transaction that was begun in autocommit is not seen.
    """
    return connection.get_autocommit() and not getattr(connection, "server_status", 0) & SERVER_STATUS_IN_TRANS


class Mogrifying:
    """What is lacking in the cursors of drivers that do not write every value as a text."""

    def mogrify(self, query: str, args: Any = None) -> str:
        """Return the statement with the values in it."""
        if args is None:
            return query
        if isinstance(args, dict):
            return query % {name: self._literal(value) for name, value in args.items()}
        return query % tuple(map(self._literal, args))

    def _literal(self, value: Any) -> Any:
        if isinstance(value, bytes):
            return f"x'{value.hex()}'"
        if isinstance(value, (tuple, list)):
            return f"({','.join(map(self._literal, value))})"
        return self._escaped(value)

    def _escaped(self, value: Any) -> Any:
        raise NotImplementedError


@contextmanager
def atomic(cursor: AnyCursor) -> Iterator[None]:
    """Run all of the block's statements or none: in a transaction, or under a savepoint if one is open already.

    The savepoint is for a caller that continues after our error: most errors roll back one statement only.
    """
    ours = commits_each(cursor.connection)
    cursor.execute("begin" if ours else "savepoint tablequeue")
    with undone(cursor, whole=ours):
        yield
    if ours:
        cursor.execute("commit")


@contextmanager
def undone(cursor: AnyCursor, *, whole: bool) -> Iterator[None]:
    """After an error of the block roll back the `whole` transaction, or else to the savepoint."""
    try:
        yield
    except Exception:
        try:
            cursor.execute("rollback" if whole else "rollback to savepoint tablequeue")
        except pymysql.Error:
            pass  # the connection is gone, or a deadlock took the whole transaction: nothing is left to undo
        raise


def check_version(words: str) -> None:
    """Refuse a server by its version, if it is too old, or is another server that speaks the protocol."""
    if refusal := look_alike(words, LOOK_ALIKES, "MariaDB or MySQL"):
        raise refusal
    # MariaDB may put 5.5.5- before its version, for old replicas.
    kind = "MariaDB" if "mariadb" in words.lower() else "MySQL"
    version = tuple(int(part) for part in re.findall(r"\d+", words.removeprefix("5.5.5-"))[:3])
    if version < OLDEST[kind]:
        needed = " or ".join(f"{one} {_dotted(oldest)}" for one, oldest in OLDEST.items())
        raise errors.DatabaseError(f"The server is {kind} {_dotted(version)}.", f"tablequeue needs {needed}, or newer.")


def check_locked(changed: int, rows: Sequence[Any]) -> None:
    """Refuse a claim, so that it is rolled back, if not all of the messages that it has locked were still ready."""
    if changed != len(rows):
        raise errors.DatabaseError(
            "Another session has changed messages that a claim had locked: the server does not keep locks.",
            "Use MariaDB or MySQL itself; docs/engines/compatible.md lists services that run them.",
        )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
