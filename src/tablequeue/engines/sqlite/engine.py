"""SQLite: one writer at a time, WAL, BEGIN IMMEDIATE, and before it a file lock that makes the waiting fair."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from copy import copy
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, ClassVar

import sqlalchemy as sa

from tablequeue import errors
from tablequeue.engines.columns import TIMES, common_expressions, tables
from tablequeue.engines.connection import Cursor
from tablequeue.engines.engine import Engine
from tablequeue.engines.operation import Effect
from tablequeue.engines.ranges import Ranges
from tablequeue.engines.sqlite.checks import CHECKS
from tablequeue.engines.sqlite.connection import SQLiteConnection, adopt, plain_cursor
from tablequeue.engines.sqlite.fair import SLOT
from tablequeue.engines.sqlite.file import missing, path_of, refuse_other_file
from tablequeue.engines.sqlite.inherited import refuse, refuse_inherited
from tablequeue.engines.sqlite.listener import SQLiteListener
from tablequeue.engines.sqlite.messages import (
    SQLiteCatalogue,
    SQLiteMessages,
    SQLiteStaging,
    SQLiteStreams,
    SQLiteTaskResults,
    SQLiteTopics,
)
from tablequeue.engines.sqlite.refusals import translated
from tablequeue.engines.sqlite.user_tables import SQLiteUserTables
from tablequeue.engines.table import Statements
from tablequeue.engines.texts import IN_TURN, Client, sql_text
from tablequeue.errors import TablequeueError
from tablequeue.model.names import PART

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# What makes an index or a trigger: it names tables without their schema, and means those of its own.
_OF_ONE_FILE = re.compile(r"(?m)^create (unique )?(index|trigger)")
# The types of columns in the tables.
TYPES = {
    **dict.fromkeys(TIMES, "integer"),
    **dict.fromkeys(("outcome", "group_key", "dedup_key", "producer", "consumer", "headers", "errors"), "text"),
}


class SQLite(Engine):
    name = "sqlite"
    catalogue = SQLiteCatalogue()
    messages = SQLiteMessages()
    topics = SQLiteTopics()
    ranges = Ranges(messages, topics, Engine.range_reads)
    streams = SQLiteStreams()
    staging = SQLiteStaging()
    task_results = SQLiteTaskResults()
    user_tables = SQLiteUserTables()
    checks = CHECKS
    drivers = ("pysqlite",)
    has_servers = False
    async_drivers: ClassVar = {"aiosqlite": {}}
    # A heap promises no order; by id costs nothing.
    ready_index: ClassVar = {
        "heap": "id",
        "fifo": "id",
        "lifo": "id",
        "due": "due_at, id",
        "priority": "priority desc, id",
        "fair": f"{SLOT}, id",
    }
    order_by: ClassVar = {**ready_index, "lifo": "id desc", "fair": IN_TURN}
    slot = SLOT
    payload_types: ClassVar = {
        "json": "text not null check (json_valid(payload))",
        "text": "text not null",
        "bytes": "blob not null",
    }
    staged_types: ClassVar = {"json": "text", "text": "text", "bytes": "blob"}
    expressions: ClassVar = common_expressions("null") | tables(TYPES)
    # The machine's clock, which is the same for every process that can open the file. It is in milliseconds, because
    # unixepoch has fractions only from SQLite 3.42 on.
    own_clock = "cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000"
    clock = f"coalesce(:now, {own_clock})"
    places = f"select places from {{}}{PART}slots"  # noqa: S608
    until_token = f"max(0, spent_until - (burst - 1) * step - {clock}) / 1e6"
    client = Client(
        "sqlite3",
        "Between `begin;` and `commit;` it is all or nothing.",
        {
            **dict.fromkeys(("since", "pushed_at", "popped_at", "finished_at"), "0"),
            "until": "1900000000000000",
            "bytes": "x'00ff'",
        },
    )
    autocommit = (Effect.READ,)
    # Seconds that SQLite waits for a lock of another program. Connections of our own wait for their turn before.
    connect_args: ClassVar = {"timeout": 10}
    has_schemas = False
    promotes = False
    saves = "all"
    sweeps_within = True
    closes_before_fork = True
    listener = SQLiteListener
    _path: str | None = None
    """The file of the database; None if it is in memory, or its name is not in the URL."""

    def after(self, seconds: str) -> str:
        return f"{self.clock} + cast({seconds} * 1000000 as integer)"

    def compile(self, text: str) -> str:
        return text  # sqlite3 takes :name and a dict as they are

    # -- connections and errors ------------------------------------------------------------------------------------

    def check_url(self, url: sa.URL) -> None:
        if url.database:
            refuse(url.database)

    def render(
        self, operation: str, table: Statements, state: str = "ready", instead: Mapping[str, str] = MappingProxyType({})
    ) -> str:
        if self.place is None or not _OF_ONE_FILE.search(sql_text(self.name, operation)):
            return super().render(operation, table, state, instead)
        bare = copy(self)
        bare.place = None
        return super(SQLite, bare).render(operation, table, state, instead)

    def opened(self, sa_engine: sa.Engine) -> None:
        # A caller's connection may have a temporary table of that name, or another file attached.
        self.settle("main")
        # Once: SQLAlchemy too resolved a relative path when the Engine was made.
        self._path = path_of(sa_engine)

    def missing(self) -> str | None:
        return None if self._path is None else missing(self._path)

    def adopt(self, dbapi: Any) -> SQLiteConnection:
        return adopt(dbapi)

    def commits_each(self, dbapi: Any) -> bool:
        dbapi = getattr(dbapi, "driver_connection", dbapi)
        # From Python 3.12 on a connection may have `autocommit`; then isolation_level has no effect.
        switch = getattr(dbapi, "autocommit", -1)
        commits = dbapi.isolation_level is None if switch == -1 else bool(switch)
        return commits and not dbapi.in_transaction

    def join(self, dbapi: Any) -> Cursor:
        if dbapi.text_factory is not str:
            raise errors.BadInput(
                f"The text_factory of the connection is {dbapi.text_factory!r}; tablequeue cannot read messages by it.",
                "Leave it at str.",
            )
        cursor = plain_cursor(dbapi)
        refuse_inherited(cursor)
        if self._path is not None:
            refuse_other_file(cursor, self._path)
        if not dbapi.in_transaction:
            # sqlite3 itself would begin late and deferred, and a deferred transaction that turns to writing fails
            # at once, without waiting, when another writer is ahead.
            cursor.execute("begin immediate")
        return cursor

    def translate(self, error: Exception) -> TablequeueError | None:
        return translated(error)

    # -- values ----------------------------------------------------------------------------------------------------

    def dump_time(self, time: datetime) -> int:
        return (time - _EPOCH) // _MICROSECOND

    def load_time(self, value: int) -> datetime:
        try:
            return _EPOCH + timedelta(microseconds=value)
        except OverflowError:
            # A user's own SQL may have written a time outside of the years that Python supports.
            return (datetime.min if value < 0 else datetime.max).replace(tzinfo=UTC)

    def dump_ids(self, ids: Sequence[int]) -> str:
        return str(list(ids))  # JSON; json.dumps returns the same, but takes 1 µs longer

    def load_ids(self, ids: str) -> list[int]:
        loaded: list[int] = json.loads(ids)
        return loaded
