"""SQL Server: READPAST, OUTPUT, filtered indexes, one batch a call.

Not run against SQL Server itself where it was written: the texts pass Microsoft's parser and the rules of
tests/test_mssql_texts.py; what the drivers do was read in their sources and documentation.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar

from tablequeue.definition import Definition
from tablequeue.engines.base import Cursor, Held, Params, Stored, Table
from tablequeue.engines.columns import TIMES, reads, typed
from tablequeue.engines.mssql.answers import TEXTS, in_bytes, kept
from tablequeue.engines.mssql.checks import CHECKS
from tablequeue.engines.mssql.connection import Batch, MSSQLCursor, batches_in, dashed, hold, whole
from tablequeue.engines.mssql.refusals import (
    DEADLOCK,
    DUPLICATES,
    LOCK_TIMEOUT,
    is_driver_error,
    number_of,
    refused_by,
    translated,
)
from tablequeue.engines.mssql.steps import STEP, claimed_in_steps, steps_of, steps_of_ids, text_of
from tablequeue.engines.mssql.streams import SQLServerStreams
from tablequeue.engines.operations import in_autocommit
from tablequeue.engines.texts import Client, Row, quoted_role, ready_states
from tablequeue.errors import TablequeueError

# What each row of push_each may have of its own.
GIVEN = ("headers", "priority", "group", "key", "due", "delay")
# No clustered index on the identity: see create.sql.
SCATTERED = ("heap", "due")


# Types of columns in table variables. Keys and groups are stored as bytes in the queue, and as text in the history.
TYPES = {
    "id": "bigint",
    **dict.fromkeys(("attempts", "priority"), "int"),
    "token": "uniqueidentifier",
    **dict.fromkeys(TIMES, "datetime2(6)"),
    **dict.fromkeys(("group_key", "dedup_key"), "nvarchar(510)"),
    **dict.fromkeys(("producer", "consumer"), "nvarchar(512)"),
    **dict.fromkeys(("headers", "errors"), "nvarchar(max)"),
    "payload": "{payload_type}",
}
READS = reads("cast(null as datetime2(6))")
BYTES = {column: f"convert(nvarchar(510), {{}}{column}) as {column}" for column in ("group_key", "dedup_key")}


def after(seconds: str, start: str = "@now") -> str:
    """`start` and that many seconds, a float, as SQL: DATEADD takes whole numbers, of 32 bits."""
    minutes = f"floor({seconds} / 60)"
    return (
        f"dateadd(microsecond, cast(round(({seconds} - {minutes} * 60) * 1e6, 0) as int),\n"
        f"    dateadd(minute, cast({minutes} as int), {start}))"
    )


class SQLServerTable(Table):
    """A table whose batches answer with the bytes of text, which the cursor decodes; see answers.py."""

    def statements(self, operation: str, state: str = "ready") -> list[str]:
        if (operation, state) not in self._compiled:
            texts = [name for name in TEXTS if name != "payload" or self.definition.payload != "bytes"]
            batches = self.engine.split(self.engine.render(operation, self, state))
            self._compiled[operation, state] = [self.engine.compile(in_bytes(batch, texts)) for batch in batches]
        return self._compiled[operation, state]


class SQLServer(SQLServerStreams):
    name = "mssql"
    checks = CHECKS
    drivers = ("mssqlpython", "pyodbc", "pymssql")
    # A heap promises no order; by id is what the index gives for nothing.
    ready_index: ClassVar = {
        "heap": "id",
        "fifo": "id",
        "lifo": "id",
        "due": "due_at, id",
        "priority": "priority desc, id",
    }
    order_by: ClassVar = {**ready_index, "lifo": "id desc"}
    # JSON as text, as it was pushed. No check by ISJSON: before SQL Server 2022 it knows objects and arrays only, and
    # OUTPUT ... INTO, which writes the history, refuses a table that has a check.
    payload_types: ClassVar = {"json": "nvarchar(max)", "text": "nvarchar(max)", "bytes": "varbinary(max)"}
    expressions: ClassVar = {
        "live_columns": BYTES | READS["live_columns"],
        "history_columns": READS["history_columns"],
        "claimed": BYTES,
        "claimed_types": typed(TYPES),
        "history_types": typed(TYPES),
    }
    own_clock = "sysutcdatetime()"
    clock = f"coalesce(cast(:now as datetime2(6)), {own_clock})"
    client = Client(
        "sqlcmd",
        "Run it between `begin transaction` and `commit transaction`: all or nothing, and the lock lasts as long.",
        {
            "bytes": "0x00ff",
            **dict.fromkeys(("token", "claim"), f"'{dashed('0' * 32)}'"),
            "payloads": 'N\'["1", "2"]\'',
            "rows": 'N\'[{"payload": "1"}]\'',
        },
    )
    stored = Stored("@p_{}", partial(quoted_role, "[]"), kept=kept)
    # Operations of several batches make a transaction of their own, see whole().
    autocommit = in_autocommit()

    def words(self, table: Table, state: str = "ready") -> dict[str, str]:
        words = super().words(table, state)
        definition = table.definition
        in_bytes = definition.payload == "bytes"
        turns = f"{words['turns']} (group_key)"
        grouped = definition.grouped
        return words | {
            # For the index of a state: its filter, and the state if that is not all of it.
            "in_state": f"{ready_states(definition)} and state = 'ready'"
            if state == "ready" and definition.order == "due"
            else f"state = '{state}'",
            "clustered": "nonclustered" if definition.order in SCATTERED else "clustered",
            # A strict queue's consumers wait for its head; all others pass over what is locked.
            "claim_locks": f"rowlock, {'' if definition.strict else 'readpast, '}updlock, readcommittedlock",
            "now_and_delay": after("@delay"),
            "now_and_lease": after("@lease"),
            "now_less_age": after("(-@age)"),
            "now_and_given_delay": after("given.delay"),
            # JSON has no bytes: they go in hexadecimal digits (style 2).
            "payload_of_value": "convert(varbinary(max), batch.value, 2)" if in_bytes else "batch.value",
            "payload_of_row": "convert(varbinary(max), given.payload, 2)" if in_bytes else "given.payload",
            "errors_and_one": (
                "json_modify(coalesce(errors, N'[]'), 'append $', json_query((\n"
                "        select\n"
                "            attempts as attempt, convert(nvarchar(33), @now, 126) as at, consumer, @error as error\n"
                "        for json path, without_array_wrapper, include_null_values\n"
                "    )))"
            ),
            # A grouped queue's notes for promote; see create_groups.sql.
            "note_inserted": f"output inserted.group_key into {turns}\n" if grouped else "",
            "note_deleted": f"output deleted.group_key into {turns}\n" if grouped else "",
            "note_batch": (
                f"insert into {turns}\nselect group_key from @batch where fresh = 1\n"
                "group by group_key order by min(place);\n"
                if grouped
                else ""
            ),
        }

    def claimable(self, definition: Definition) -> str:
        states = ready_states(definition)
        return f"{states} and due_at <= @now" if definition.order == "due" else states

    def split(self, text: str) -> list[str]:
        return batches_in(text)

    def table(self, name: str, definition: Definition, table_name: str | None = None) -> SQLServerTable:
        return SQLServerTable(self, name, definition, table_name)

    def compile(self, text: str) -> str:
        # Bound by the cursor: what a driver takes depends on which one it is, and on which parameters are null.
        return Batch(text)

    # -- connections and errors ------------------------------------------------------------------------------------

    def hold(self, dbapi: Any) -> Held:
        return hold(dbapi, ("session", "server"))

    def commits_each(self, dbapi: Any) -> bool:
        # pymssql's attribute of that name is a method.
        if not getattr(dbapi, "autocommit_state", dbapi.autocommit):
            return False
        return MSSQLCursor(dbapi, held=False).execute("select @@trancount").fetchone() == (0,)

    def join(self, dbapi: Any) -> Cursor:
        return MSSQLCursor(dbapi, held=False)

    def translate(self, error: Exception) -> TablequeueError | None:
        return translated(error)

    def is_transient(self, error: Exception) -> bool:
        if not is_driver_error(error):
            return False
        number = number_of(error)
        # Two calls at once that promoted in the same group, pushed the same key, or made the row of the same stream,
        # writer or schedule. Another duplicate would stay one.
        if number in DUPLICATES:
            return (refused_by(error) or "").endswith(("__front", "__key", "__streams", "__writers", "__schedules"))
        return number in (DEADLOCK, LOCK_TIMEOUT)

    # -- values ----------------------------------------------------------------------------------------------------

    def dump_time(self, time: datetime) -> str:
        # In words: pymssql sends a datetime with milliseconds only. datetime2 reads this form in every language.
        return time.replace(tzinfo=None).isoformat(timespec="microseconds")

    def load_time(self, value: Any) -> datetime:
        return (datetime.fromisoformat(value) if isinstance(value, str) else value).replace(tzinfo=UTC)

    def dump_ids(self, ids: Sequence[int]) -> str:
        # In order, so that two that lock some of the same rows do not lock each other out.
        return str(sorted(set(ids)))

    # -- the catalogue ---------------------------------------------------------------------------------------------

    # -- pushing ---------------------------------------------------------------------------------------------------

    def push(self, cursor: Cursor, table: Table, params: Params) -> int | None:
        try:
            return super().push(cursor, table, params)
        except Exception as error:
            # Another transaction has pushed the key since we looked. Where XACT_ABORT is on, that has undone the
            # caller's transaction with it: then the error is theirs to see.
            if params["key"] is not None and _is_taken(error) and (cursor.held or _goes_on(cursor)):
                return None
            raise

    def push_many(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        """By OPENJSON, whatever the driver.

        mssql-python's bulk copy (1.16) is not used: it opens a connection of its own, so that it could be part neither
        of the caller's transaction nor of ours, and it returns no ids. Multi-row VALUES end at 1,000 rows and at 2,100
        parameters.
        """
        steps = list(steps_of(params["payloads"], len))
        if len(steps) == 1 and not table.definition.grouped:
            return self._push_step(cursor, table, params, steps[0])
        ids: list[int] = []
        with whole(cursor):
            for step in steps:
                ids += self._push_step(cursor, table, params, step)
            self._note(cursor, table, [params["group"]])
        return ids

    def push_each(self, cursor: Cursor, table: Table, params: Params) -> list[int | None]:
        rows = params["rows"]
        ids: list[int | None] = []
        for start in range(0, len(rows), STEP):
            step = [_given(row) for row in rows[start : start + STEP]]
            given = {"producer": params["producer"], "now": params["now"], "rows": json.dumps(step, ensure_ascii=False)}
            ids += self._push_rows(cursor, table, given)
        return ids

    def find_keys(self, cursor: Cursor, table: Table, params: Params) -> dict[str, int]:
        return super().find_keys(cursor, table, {"keys": json.dumps(params["keys"], ensure_ascii=False)})

    def _push_step(self, cursor: Cursor, table: Table, params: Params, payloads: Sequence[str | bytes]) -> list[int]:
        texts = json.dumps([text_of(payload) for payload in payloads], ensure_ascii=False)
        return sorted(row[0] for row in self._rows(cursor, table, "push_many", params | {"payloads": texts}))

    def _push_rows(self, cursor: Cursor, table: Table, params: Params) -> list[int | None]:
        while True:
            try:
                with whole(cursor):
                    return [row[0] for row in self._rows(cursor, table, "push_each", params)]
            except Exception as error:
                # As in push; a transaction of the runner's is gone by then, and the runner tries all of it again.
                if cursor.held or not _is_taken(error) or not _goes_on(cursor):
                    raise

    # -- claiming --------------------------------------------------------------------------------------------------

    def sweep(self, cursor: Cursor, table: Table, params: Params) -> int:
        return sum(len(cursor.execute(batch, params).fetchall()) for batch in table.statements("sweep"))

    def promote(self, cursor: Cursor, table: Table, params: Params) -> int:
        try:
            with whole(cursor):
                return super().promote(cursor, table, params)
        except Exception as error:
            # Somebody has a head locked, in a database without READ_COMMITTED_SNAPSHOT. The notes are still there.
            if is_driver_error(error) and number_of(error) == LOCK_TIMEOUT:
                return 0
            raise

    def _claimed(self, cursor: Cursor, table: Table, operation: str, params: Params) -> list[Row]:
        notes = table.definition.grouped and operation == "take_keep"
        try:
            if params["n"] <= STEP and not notes:
                rows = self._rows(cursor, table, operation, params)
            else:
                with whole(cursor):
                    rows = claimed_in_steps(
                        lambda n: self._rows(cursor, table, operation, params | {"n": n}), params["n"]
                    )
                    if notes:
                        self._note(cursor, table, _groups(rows, 8))
        except Exception as error:
            # A strict queue's head is being taken in a transaction that is still open: nothing is ready for us.
            if table.definition.strict and cursor.held and is_driver_error(error) and number_of(error) == LOCK_TIMEOUT:
                return []
            raise
        rows.sort(key=table.rank)  # type: ignore[arg-type]  # None: as tuples
        return rows

    # -- finishing and keeping -------------------------------------------------------------------------------------

    def complete(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        if not (table.definition.grouped and table.definition.keeps_history):
            return self._by_ids(cursor, table, super().complete, params)
        with whole(cursor):
            rows = [row for step in steps_of_ids(params) for row in self._rows(cursor, table, "complete_keep", step)]
            self._note(cursor, table, _groups(rows, 1))
        return [row[0] for row in rows]

    def release(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        return self._by_ids(cursor, table, super().release, params)

    def redrive_ids(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        return self._by_ids(cursor, table, super().redrive_ids, params)

    def purge_ids(self, cursor: Cursor, table: Table, params: Params) -> int:
        steps = steps_of_ids(params)
        if len(steps) == 1:
            return super().purge_ids(cursor, table, params)
        with whole(cursor):
            return sum(super(SQLServer, self).purge_ids(cursor, table, step) for step in steps)

    def _by_ids(self, cursor: Cursor, table: Table, operation: Any, params: Params) -> list[int]:
        """Do something to `ids`, STEP at a time; to which it was done."""
        steps = steps_of_ids(params)
        if len(steps) == 1:
            return operation(cursor, table, params)
        with whole(cursor):
            return [id for step in steps for id in operation(cursor, table, step)]

    def _note(self, cursor: Cursor, table: Table, groups: Iterable[str]) -> None:
        if table.definition.grouped and (noted := list(dict.fromkeys(groups))):
            self._run(cursor, table, "note", {"groups": json.dumps(noted, ensure_ascii=False)})


def _groups(rows: Sequence[Row], column: int) -> list[str]:
    return [row[column] for row in sorted(rows, key=lambda row: row[0])]


def _given(row: Params) -> Params:
    """A row of push_each as JSON has it."""
    return {name: row[name] for name in GIVEN} | {"payload": text_of(row["payload"])}


def _is_taken(error: Exception) -> bool:
    """Whether the unique index of the keys has refused."""
    return is_driver_error(error) and number_of(error) in DUPLICATES and (refused_by(error) or "").endswith("__key")


def _goes_on(cursor: Cursor) -> bool:
    """Whether the caller's transaction can still commit."""
    return cursor.execute("select xact_state()").fetchone() == (1,)
