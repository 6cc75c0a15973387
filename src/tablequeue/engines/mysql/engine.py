"""MariaDB and MySQL: SKIP LOCKED, no RETURNING, DDL that commits, and new ids in the response to an insert.

The SQL texts are written for both. They were tested on MariaDB only; no MySQL server was available.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, ClassVar
from weakref import WeakSet

import pymysql
import sqlalchemy as sa
from pymysql.constants import ER

from tablequeue.engines.awaited import Awaited
from tablequeue.engines.columns import TIMES, common_expressions, filled, tables
from tablequeue.engines.connection import Cursor, RawConnection
from tablequeue.engines.engine import Engine
from tablequeue.engines.mysql import procedure_syntax as procedures
from tablequeue.engines.mysql.answers import bound_connects, connecting
from tablequeue.engines.mysql.catalogue import MySQLCatalogue
from tablequeue.engines.mysql.checks import CHECKS
from tablequeue.engines.mysql.connection import MySQLCursor, adopt, check_charset, check_session, commits_each
from tablequeue.engines.mysql.custom import MySQLBatches, MySQLPauses, MySQLProgress, MySQLReads, MySQLTaskResults
from tablequeue.engines.mysql.messages import MySQLMessages
from tablequeue.engines.mysql.printing import composed
from tablequeue.engines.mysql.range_reads import MySQLRangeReads
from tablequeue.engines.mysql.ranges import MySQLRanges
from tablequeue.engines.mysql.refusals import number_of, translated
from tablequeue.engines.mysql.streams import MySQLStaging, MySQLStreams
from tablequeue.engines.mysql.topics import MySQLTopics
from tablequeue.engines.mysql.user_tables import MySQLUserTables
from tablequeue.engines.poll import Poll
from tablequeue.engines.table import Table
from tablequeue.engines.texts import Client, compile_text
from tablequeue.errors import BadUrl, TablequeueError
from tablequeue.model.attempts import FIRST_ERRORS, LAST_ERRORS
from tablequeue.model.definition import Definition
from tablequeue.model.names import MOVING, PART

# Error of an insert that waits too long for the lock of new ids. Hundreds of connections to a grouped queue cause it.
AUTOINC_READ_FAILED = 1467
# Keys and groups are stored as bytes.
BINARY = {column: f"convert({column} using utf8mb4) as {column}" for column in ("group_key", "dedup_key")}
# The table of the keys of live messages, by the end of its name.
LIVE_KEYS = f"{PART}live_keys"
# The orders whose claim has an index of its own.
INDEXED = ("due", "priority", "fair")
# Those that stay. Without ranges and without `last` in their paths, which MariaDB has from 10.9 on.
PLACES = [
    *(f"'$[{place}]'" for place in range(FIRST_ERRORS)),
    *(f"concat('$[', json_length(errors) - {place}, ']')" for place in range(LAST_ERRORS - 1, 0, -1)),
]
# A shared lock, in the words of each server: MariaDB passes over comments of the versions from 50700 to 50999.
SHARE_SKIP_LOCKED = "/*!50799 for share skip locked */ /*M!100600 lock in share mode skip locked */"
# The connections of callers whose settings were looked at.
_CHECKED: WeakSet[Any] = WeakSet()
# The types of columns in the tables.
TYPES = {
    **dict.fromkeys(TIMES, "datetime(6)"),
    "outcome": "varchar(9) character set ascii collate ascii_bin",
    **dict.fromkeys(("group_key", "dedup_key"), "varbinary(1020)"),
    **dict.fromkeys(("producer", "consumer"), "varchar(255)"),
    **dict.fromkeys(("headers", "errors"), "longtext"),
}


class MySQL(Engine):
    name = "mysql"
    catalogue = MySQLCatalogue()
    messages = MySQLMessages()
    topics = MySQLTopics()
    range_reads = MySQLRangeReads()
    reads = MySQLReads()
    ranges = MySQLRanges(messages, topics, range_reads)
    streams = MySQLStreams()
    staging = MySQLStaging()
    batches = MySQLBatches()
    pauses = MySQLPauses()
    progress = MySQLProgress()
    task_results = MySQLTaskResults()
    user_tables = MySQLUserTables()
    checks = CHECKS
    drivers = ("pymysql",)
    async_drivers: ClassVar = {"aiomysql": {"echo": "", "auth_plugin": ""}}
    # A heap promises no order; by id is what the index gives for nothing.
    ready_index: ClassVar = {
        "heap": "id",
        "fifo": "id",
        "lifo": "id",
        "due": "due_at, id",
        "priority": "urgency, id",
        "fair": "slot, id",
    }
    order_by: ClassVar = {**ready_index, "lifo": "id desc", "fair": "slot, id"}
    slot = "slot"
    completed = "message"
    payload_types: ClassVar = {
        "json": "longtext not null check (json_valid(payload))",
        "text": "longtext not null",
        "bytes": "longblob not null",
    }
    staged_types: ClassVar = {"json": "longtext", "text": "longtext", "bytes": "longblob"}
    expressions: ClassVar = {
        **{name: BINARY | columns for name, columns in common_expressions("cast(null as datetime(6))").items()},
        "claimed": BINARY,
        **tables(TYPES),
    }
    # Not now(): it depends on the time zone of the connection, which may be the caller's.
    own_clock = "utc_timestamp(6)"
    clock = f"coalesce(cast(:now as datetime(6)), {own_clock})"
    until_token = f"greatest(0, timestampdiff(microsecond, {clock}, spent_until) - (burst - 1) * step) / 1e6"
    client = Client(
        "mariadb or mysql",
        "Each DDL statement commits: after a failure, drop what was created with the SQL of `drop`.",
        {"bytes": "x'00ff'", "keys": "('key')", "attempts": "('attempt')"},
    )
    quotes = "``"
    saves = "several"
    savepoints_stay = False
    listener = Poll
    procedure_syntax = procedures.SYNTAX
    # At REPEATABLE READ, the default, a transaction sees the data as of its first read, and locks those of now.
    looks_apart = True
    commits_ddl = True
    low_water = True

    def common_words(self) -> dict[str, str]:
        return super().common_words() | {"database": f"'{self.place}'" if self.place else "database()"}

    def words(self, table: Table, state: str = "ready") -> dict[str, str]:
        definition = table.definition
        swept = state in ("scheduled", "in_progress")
        words = super().words(table, state)
        source = None if table.source is None or table.source.table_name.endswith(MOVING) else words["source"]
        return {
            **words,
            **procedures.words(self.dialect.name, definition),
            "live_keys": f"{words['queue']}{LIVE_KEYS}",
            "with_key": _with_key(words["queue"]),
            "target_live_keys": f"{words['target']}{LIVE_KEYS}",
            "with_target_key": _with_key(words["target"]),
            # Messages that were set aside have no rows of keys.
            "and_source_key": f", {source}{LIVE_KEYS}" if source else "",
            "with_source_key": f"\n{_with_key(source)}" if source else "",
            "in_time_of_message": words["in_time"].replace("expires_at", "message.expires_at"),
            "fourth": ", 'blocked'" if definition.grouped else "",
            "or_fourth": " when in_run <> 0 then 4" if definition.grouped else "",
            "claim_index": f"{table.table_name}{PART}{'ready' if definition.arrangement in INDEXED else 'state'}",
            # The second column of the index of the states. Where it is null, the entries are in the order of the ids.
            "unswept": "" if swept else " and sweep_at is null",
            "error_places": filled(PLACES, " " * 12).lstrip(),
            # Of a lock of index entries: only columns of the index, or the row would be locked too.
            "pinnable": self.claimable(definition),
            "share_skip_locked": SHARE_SKIP_LOCKED,
            # A list of ids as a table. Measured with 20,000 rows: the primary key serves each of 5,000 ids (16 ms to
            # delete them); an IN list of 5,000 reads, and so locks, the whole table (30 ms).
            "given": "json_table(:ids, '$[*]' columns (id bigint path '$')) as given",
            # The same with a delay for each.
            "delayed": "json_table(:delays, '$[*]' columns (id bigint path '$[0]', delay double path '$[1]')) as given",
            # The same for pairs of ids, and for runs of a topic.
            "piece": "json_table(:pieces, '$[*]' columns (low bigint path '$[0]', high bigint path '$[1]')) as piece",
            "run": "json_table(:runs, '$[*]' columns (first_offset bigint path '$[0]', low bigint path '$[1]', "
            "high bigint path '$[2]')) as run",
        }

    def after(self, seconds: str) -> str:
        return f"{self.clock} + interval {seconds} second"

    def claimable(self, definition: Definition) -> str:
        if definition.arrangement not in INDEXED:
            return "state = 'ready' and sweep_at is null"
        return f"waiting = 1 and due_at <= {self.clock}" if definition.order == "due" else "waiting = 1"

    def split(self, text: str) -> list[str]:
        return procedures.split(text)

    def compile(self, text: str) -> str:
        return compile_text(text, self.dialect)

    # -- connections and errors ------------------------------------------------------------------------------------

    def opened(self, sa_engine: sa.Engine) -> None:
        bound_connects(sa_engine)

    def connecting(self) -> AbstractContextManager[None]:
        return connecting()

    def adopt(self, dbapi: Any) -> RawConnection:
        connection = adopt(dbapi)
        if self.place is None:
            self.settle_by(connection.cursor)
        return connection

    def commits_each(self, dbapi: Any) -> bool:
        return commits_each(getattr(dbapi, "driver_connection", dbapi))

    def join(self, dbapi: Any) -> Cursor:
        check_charset(dbapi)
        if not type(dbapi).__module__.startswith("MySQLdb."):
            return self._checked(dbapi, dbapi.cursor(MySQLCursor))
        from tablequeue.engines.mysql.mysqlclient_cursor import MysqlclientCursor  # there only if a caller has it

        return self._checked(dbapi, MysqlclientCursor(dbapi))

    def _checked(self, driver: Any, cursor: Cursor) -> Cursor:
        """Return the cursor of a caller's connection, after a look at its settings the first time."""
        if driver not in _CHECKED:
            check_session(cursor, self.shared.statement("check_session"))
            _CHECKED.add(driver)
        return cursor

    def join_async(self, adapted: Any) -> Cursor:
        from tablequeue.engines.mysql.aiomysql_cursor import AiomysqlCursor  # there only if a caller has the driver

        check_charset(adapted.driver_connection)
        return self._checked(adapted.driver_connection, Awaited(adapted, AiomysqlCursor(adapted.driver_connection)))

    def translate(self, error: Exception) -> TablequeueError | None:
        if isinstance(error, sa.exc.InvalidRequestError) and "not a MariaDB variant" in str(error):
            return BadUrl(f"The URL names MariaDB: {error}", "Write mysql+pymysql:// instead of mariadb+pymysql://.")
        return translated(error)

    def is_transient(self, error: Exception) -> bool:
        # After a lock time-out the server has rolled back only the statement; the runner has rolled back the rest.
        transient = (ER.LOCK_DEADLOCK, ER.LOCK_WAIT_TIMEOUT, AUTOINC_READ_FAILED)
        return isinstance(error, pymysql.Error) and number_of(error) in transient

    # -- values ----------------------------------------------------------------------------------------------------

    def composed(self, operation: str, table: Table) -> list[str]:
        return composed(self.messages, operation, table)

    def literal(self, text: str) -> str:
        return super().literal(text.replace("\\", "\\\\"))

    def dump_time(self, time: datetime) -> datetime:
        return time.replace(tzinfo=None)  # DATETIME has no time zone; ours are all in UTC

    def load_time(self, value: Any) -> datetime:
        return (datetime.fromisoformat(value) if isinstance(value, str) else value).replace(tzinfo=UTC)

    def dump_ids(self, ids: Sequence[int]) -> str:
        # Sorted, so that two calls that lock some of the same rows do not deadlock.
        return str(sorted(set(ids)))

    def load_ids(self, ids: str) -> list[int]:
        return [*json.loads(ids)]


def _with_key(queue: str) -> str:
    """Return the join of the row of a message's key: what deletes the message deletes it too.

    Without aliases, which a `delete` looks for in the connection's own database.
    """
    keys = f"{queue}{LIVE_KEYS}"
    return f"left join {keys} force index (primary) on {keys}.dedup_key = {queue}.dedup_key"
