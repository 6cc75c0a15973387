"""MariaDB and MySQL: SKIP LOCKED, no RETURNING, DDL that commits by itself, ids that come back with an answer.

The texts are written for both. They were tested on MariaDB; MySQL could not be had where they were.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any, ClassVar

import pymysql
from pymysql.constants import ER
from pymysql.constants.SERVER_STATUS import SERVER_STATUS_IN_TRANS

from tablequeue import errors
from tablequeue.definition import Definition
from tablequeue.engines.awaited import Awaited
from tablequeue.engines.base import Catalogue, Cursor, Held, Params, Table, by_history
from tablequeue.engines.low_water import LowWater
from tablequeue.engines.mysql import stored as procedures
from tablequeue.engines.mysql.checks import CHECKS
from tablequeue.engines.mysql.connection import check_charset, hold, join, whole
from tablequeue.engines.mysql.gate import at_once
from tablequeue.engines.mysql.refusals import number_of, translated
from tablequeue.engines.mysql.rows import chunked, insert, stored
from tablequeue.engines.mysql.streams import MySQLStreams
from tablequeue.engines.operations import in_autocommit
from tablequeue.engines.poll import Poll
from tablequeue.engines.texts import Client, Row, compile_text
from tablequeue.errors import TablequeueError
from tablequeue.names import HISTORY, PART

# Keys in one IN list: from 1,000 on MariaDB turns the list into a table, and may then read the whole index.
KEYS = 500
# Messages that a claim in a caller's transaction looks at, besides twice as many as it wants.
LOOK = 32
# Claims of one process that run at once on a queue: with 8 instead of 4, each met three times as many locked rows. And
# arrangements, which find the same notes: with 4 at once, 1,000 messages in 12 groups took 400 connections more than
# 150 s, one by one 10 s.
CLAIMS, ARRANGEMENTS = 4, 1
# The order of what it sees there; else it is by id, which is the first column.
FOUND: Mapping[str, Callable[[Row], Any]] = {
    "lifo": lambda row: -row[0],
    "due": lambda row: (row[1], row[0]),
    "priority": lambda row: (-row[2], row[0]),
}
# Hundreds of connections that note turns in a grouped queue wait too long for the lock of the notes' ids.
AUTOINC_READ_FAILED = 1467
# The orders whose claim has an index of its own.
INDEXED = ("due", "priority")


class Operations(MySQLStreams):
    """The engine but for the low-water mark."""

    name = "mysql"
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
    }
    order_by: ClassVar = {**ready_index, "lifo": "id desc"}
    payload_types: ClassVar = {
        "json": "longtext not null check (json_valid(payload))",
        "text": "longtext not null",
        "bytes": "longblob not null",
    }
    staged_types: ClassVar = {"json": "longtext", "text": "longtext", "bytes": "longblob"}
    # Not now(): it depends on the time zone of the connection, which may be the caller's.
    own_clock = "utc_timestamp(6)"
    clock = f"coalesce(cast(:now as datetime(6)), {own_clock})"
    client = Client(
        "mariadb or mysql",
        "Each DDL commits by itself: what breaks off is dropped by the SQL of `drop`.",
        {"bytes": "x'00ff'", "keys": "('key')", "attempts": "('attempt')"},
    )
    # Operations of several statements make a transaction of their own, see whole().
    autocommit = in_autocommit("push_each")

    listener = Poll
    stored = procedures.STORED
    # Under REPEATABLE READ, the default, a transaction sees what there was when it first read.
    looks_apart = True

    def common_words(self) -> dict[str, str]:
        return super().common_words() | {"database": f"'{self.schema}'" if self.schema else "database()"}

    def words(self, table: Table, state: str = "ready") -> dict[str, str]:
        definition = table.definition
        swept = state in ("scheduled", "in_progress")
        return {
            **super().words(table, state),
            **procedures.words(self.dialect.name, definition),
            "claim_index": f"{table.table_name}{PART}{'ready' if definition.order in INDEXED else 'state'}",
            # The second column of the index of the states: null, then the ids are in order.
            "unswept": "" if swept else " and sweep_at is null",
            # What can be claimed, whatever the low-water mark.
            "free": Operations.claimable(self, definition),
            # A list of ids as a table. Measured with 20,000 rows: the primary key serves each of 5,000 ids (16 ms to
            # delete them); an IN list of 5,000 reads, and so locks, the whole table (30 ms).
            "given": "json_table(:ids, '$[*]' columns (id bigint path '$')) as given",
        }

    def claimable(self, definition: Definition) -> str:
        if definition.order not in INDEXED:
            return "state = 'ready' and sweep_at is null"
        return f"waiting = 1 and due_at <= {self.clock}" if definition.order == "due" else "waiting = 1"

    def split(self, text: str) -> list[str]:
        return procedures.split(text)

    def compile(self, text: str) -> str:
        return compile_text(text, self.dialect)

    # -- connections and errors ------------------------------------------------------------------------------------

    def hold(self, dbapi: Any) -> Held:
        return hold(dbapi)

    def commits_each(self, dbapi: Any) -> bool:
        driver = getattr(dbapi, "driver_connection", dbapi)
        return driver.get_autocommit() and not driver.server_status & SERVER_STATUS_IN_TRANS

    def join(self, dbapi: Any) -> Cursor:
        return join(dbapi)

    def join_async(self, adapted: Any) -> Cursor:
        from tablequeue.engines.mysql.aiomysql_cursor import AiomysqlCursor  # there only if a caller has the driver

        check_charset(adapted.driver_connection)
        return Awaited(adapted, AiomysqlCursor(adapted.driver_connection))

    def translate(self, error: Exception) -> TablequeueError | None:
        return translated(error)

    def is_transient(self, error: Exception) -> bool:
        # Of a lock that was waited for too long only the statement is rolled back; the rest, by then, by us.
        transient = (ER.LOCK_DEADLOCK, ER.LOCK_WAIT_TIMEOUT, AUTOINC_READ_FAILED)
        return isinstance(error, pymysql.Error) and number_of(error) in transient

    # -- values ----------------------------------------------------------------------------------------------------

    def dump_time(self, time: datetime) -> datetime:
        return time.replace(tzinfo=None)  # DATETIME has no zone; all of ours are UTC

    def load_time(self, value: Any) -> datetime:
        return (datetime.fromisoformat(value) if isinstance(value, str) else value).replace(tzinfo=UTC)

    def dump_ids(self, ids: Sequence[int]) -> str:
        # In order, so that two that lock some of the same rows do not lock each other out.
        return str(sorted(set(ids)))

    # -- the catalogue ---------------------------------------------------------------------------------------------

    def create(self, cursor: Cursor, table: Table, params: Params) -> None:
        self._clear(cursor, table, params)
        super().create(cursor, table, params)

    def _alter(self, cursor: Cursor, table: Table, operation: str, params: Params) -> None:
        for statement in table.statements(operation):
            try:
                cursor.execute(statement, params)
            except pymysql.Error as error:
                if number_of(error) != ER.KEY_DOES_NOT_EXITS:
                    raise

    def drop(self, cursor: Cursor, table: Table, params: Params) -> None:
        self.lock(cursor, table, params)
        if self.has_catalogue(cursor, table, {}):
            self._run(cursor, table, "unregister", params)
        self._run(cursor, table, "drop", params)
        if table.definition.grouped:
            self._run(cursor, table, "drop_groups", params)
        if table.definition.keeps_history:
            self._run(cursor, table, "drop_history", params)
        self._run(cursor, table, "drop_streams", params)

    def lock(self, cursor: Cursor, table: Catalogue, params: Params) -> None:
        if self._rows(cursor, table, "lock", params)[0][0] != 1:
            raise errors.Locked("Somebody else is making or dropping queues in this database.", "Try again later.")
        cursor.named_lock = True

    def _clear(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Drop what a crash in the middle of create or drop left; refuse what is not this queue's."""
        definition = table.definition
        stem = table.table_name
        ours = {stem: ("messages", "drop")}
        if definition.keeps_history:
            ours[f"{stem}{HISTORY}"] = ("history", "drop_history")
        if definition.grouped:
            ours[f"{stem}{PART}turns"] = ("turns", "drop_groups")
        found = [row for row in self._rows(cursor, table, "leftovers", params) if row[0] in ours]
        for name, comment in found:
            if comment != f"tablequeue: {ours[name][0]} of {stem}":
                raise errors.QueueDiffers(
                    f"The database has a table {name} that is not this queue.",
                    "Choose another queue name, or rename what is there.",
                )
        for name, _ in found:
            self._run(cursor, table, ours[name][1], params)

    # -- pushing ---------------------------------------------------------------------------------------------------

    def push(self, cursor: Cursor, table: Table, params: Params) -> int | None:
        try:
            cursor.execute(table.statement("push"), params)
        except pymysql.err.IntegrityError as error:
            # Only the statement is rolled back. INSERT IGNORE would hide other errors too.
            if params["key"] is not None and number_of(error) == ER.DUP_ENTRY:
                return None
            raise
        return cursor.lastrowid

    def push_many(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        now, step, states = self._before_rows(cursor, table, params)
        rest = cursor.mogrify(",%s,%s,%s,%s,%s,%s,%s,%s)", stored(params, now, states)[1:])
        chunks = list(chunked(cursor.mogrify("(%s", (payload,)) + rest for payload in params["payloads"]))
        # One statement is whole by itself: two round trips with the one before.
        with whole(cursor) if len(chunks) > 1 else nullcontext():
            return [id for id in insert(cursor, table.statement("push_rows"), chunks, step) if id is not None]

    def push_each(self, cursor: Cursor, table: Table, params: Params) -> list[int | None]:
        rows = params["rows"]
        if not rows:
            return []
        now, step, states = self._before_rows(cursor, table, params)
        keys = [row["key"] for row in rows if row["key"] is not None]
        # Only to save the search below, and not in a caller's transaction: under REPEATABLE READ it would lock the
        # places of the keys that are not there, as everybody does who pushes them, and nobody could.
        taken = self.find_keys(cursor, table, {"keys": keys}) if cursor.ours else {}
        places = [place for place, row in enumerate(rows) if row["key"] not in taken]
        chunks = chunked(
            cursor.mogrify("(%s,%s,%s,%s,%s,%s,%s,%s,%s)", stored(params | rows[place], now, states))
            for place in places
        )
        ids: list[int | None] = [None] * len(rows)
        with whole(cursor):
            for place, id in zip(places, insert(cursor, table.statement("push_rows"), chunks, step), strict=True):
                ids[place] = id
        return ids

    def find_keys(self, cursor: Cursor, table: Table, params: Params) -> dict[str, int]:
        found: dict[str, int] = {}
        keys = params["keys"]
        for start in range(0, len(keys), KEYS):
            for key, id in self._rows(cursor, table, "find_keys", {"keys": tuple(keys[start : start + KEYS])}):
                found[key] = id
        return found

    def _before_rows(self, cursor: Cursor, table: Table, params: Params) -> tuple[datetime, int, tuple[str, str]]:
        """What a bulk push must know: the time, how far apart the ids of a statement are, and the states of a push."""
        now, step = self._rows(cursor, table, "push_clock", {"now": params["now"]})[0]
        words = self.words(table)
        return now, step, (words["pushed_ready"], words["pushed_scheduled"])

    # -- claiming --------------------------------------------------------------------------------------------------

    @at_once(CLAIMS)
    def claim(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        if params["n"] > 1 or not cursor.ours:
            return self._removed(cursor, table, "claim_many", params)
        update, select = table.statements("claim")
        if not cursor.execute(update, params):
            return []
        cursor.execute(select, params)
        return list(cursor.fetchall())

    @at_once(CLAIMS)
    def take(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        return self._removed(cursor, table, by_history("take", table), params)

    def _removed(self, cursor: Cursor, table: Table, operation: str, params: Params) -> list[Row]:
        """Lock messages, then do the rest of the operation to them."""
        lock, *changes = table.statements(operation)
        with whole(cursor):
            if cursor.ours:
                cursor.execute(lock, params)
                rows = list(cursor.fetchall())
            else:
                rows = self._found_and_locked(cursor, table, params)
            if rows:
                more = {"ids": self.dump_ids([row[0] for row in rows])}
                more |= {"popped_at": rows[0][5], "lease_until": rows[0][6]}
                for change in changes:
                    cursor.execute(change, params | more)
        rows.sort(key=table.rank)
        return rows

    def look(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Rows of (id, due_at, priority)."""
        find, _ = table.statements("claim_find")
        # More than are wanted: others may have the first ones.
        cursor.execute(find, {"look": 2 * params["n"] + LOOK} | params | {"low_water": 0})
        return list(cursor.fetchall())

    def _found_and_locked(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        """Lock up to `n` messages in a transaction of the caller's: of those seen from outside, and of its own."""
        _, lock = table.statements("claim_find")
        look = 2 * params["n"] + LOOK
        while True:
            within = self.look(cursor, table, params | {"look": look})
            found = {row[0]: row for row in (*params["seen"], *within)}
            ids = [row[0] for row in sorted(found.values(), key=FOUND.get(table.definition.order))]
            cursor.execute(lock, {"lease": None} | params | {"ids": str(ids)})
            rows = list(cursor.fetchall())
            if len(rows) == params["n"] or len(within) < look:
                return rows
            look *= 8  # what was locked is found and locked again, and counts

    @at_once(ARRANGEMENTS)
    def arrange(self, cursor: Cursor, table: Table, params: Params) -> int:
        find, lock, choose, advance, forget = table.statements("arrange")

        def ids(statement: str, given: Sequence[int] = ()) -> list[int]:
            cursor.execute(statement, params | {"ids": self.dump_ids(given)})
            return [row[0] for row in cursor.fetchall() if row[0] is not None]

        noted = ids(find)
        if not noted:
            return 0
        with whole(cursor):
            notes = ids(lock, noted)
            fronts = ids(choose, notes) if notes else []
            arranged: int = 0
            if fronts:
                arranged = cursor.execute(advance, params | {"ids": self.dump_ids(fronts)})
            if notes:
                ids(forget, notes)
        return arranged

    # -- finishing -------------------------------------------------------------------------------------------------

    def fail(self, cursor: Cursor, table: Table, params: Params) -> str | None:
        once = table.definition.delivery == "at_most_once"
        if not cursor.execute(table.statement("fail_at_most_once" if once else "fail"), params):
            return None
        if once:
            return "lost"
        state: str = self._rows(cursor, table, "fail_state", params)[0][0]
        return state

    def _finished(self, cursor: Cursor, table: Table, operation: str, params: Params) -> list[int]:
        lock, *changes = table.statements(operation)
        ids: list[int] = json.loads(params["ids"])
        if len(ids) == 1 and len(changes) == 1:
            return ids if cursor.execute(changes[0], params) else []
        with whole(cursor):
            if len(ids) > 1:
                cursor.execute(lock, params)
                ids = [row[0] for row in cursor.fetchall()]
            for change in changes:
                if not ids or not cursor.execute(change, params):
                    return []
        return ids

    # -- keeping ---------------------------------------------------------------------------------------------------

    def sweep(self, cursor: Cursor, table: Table, params: Params) -> int:
        return len(self._found(cursor, table, "sweep", params))

    def purge(self, cursor: Cursor, table: Table, params: Params) -> int:
        return len(self._found(cursor, table, "purge", params, params["state"]))

    def purge_history(self, cursor: Cursor, table: Table, params: Params) -> int:
        return len(self._found(cursor, table, "purge_history", params))

    def redrive(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        return sorted(self._found(cursor, table, "redrive", params))

    def redrive_ids(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        lock, change = table.statements("redrive_ids")
        with whole(cursor):
            cursor.execute(lock, params)
            ids = [row[0] for row in cursor.fetchall()]
            if ids:
                cursor.execute(change, params | {"ids": self.dump_ids(ids)})
        return sorted(ids)

    # -- private -------------------------------------------------------------------------------------------------------

    def _found(self, cursor: Cursor, table: Table, operation: str, params: Params, state: str = "ready") -> list[int]:
        """Look without locks; lock those of what was found that nobody else has; change these."""
        find, lock, *changes = table.statements(operation, state)
        cursor.execute(find, params)
        found = [row[0] for row in cursor.fetchall()]
        if not found:
            return []
        with whole(cursor):
            cursor.execute(lock, params | {"ids": self.dump_ids(found)})
            ids = [row[0] for row in cursor.fetchall()]
            if ids:
                for change in changes:
                    cursor.execute(change, params | {"ids": self.dump_ids(ids)})
        return ids


class MySQL(LowWater, Operations):
    def commits(self, cursor: Cursor) -> bool:
        return bool(cursor.ours)
