"""SQL Server: READPAST, OUTPUT, filtered indexes, one batch a call.

This engine has not been run against a SQL Server: none was available. Its texts pass Microsoft's parser and the rules
of tests/test_mssql_texts.py. The behaviour of the drivers is known from their sources and documentation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar

from tablequeue.engines.columns import TIMES, common_expressions, tables, typed
from tablequeue.engines.connection import Cursor, RawConnection
from tablequeue.engines.engine import Engine
from tablequeue.engines.mssql.answers import TEXTS, in_bytes, kept
from tablequeue.engines.mssql.checks import CHECKS
from tablequeue.engines.mssql.connection import Batch, SQLServerCursor, adopt, batches_in, dashed
from tablequeue.engines.mssql.custom import (
    SQLServerBatches,
    SQLServerDependencies,
    SQLServerMoving,
    SQLServerProgress,
    SQLServerReads,
    SQLServerTaskResults,
)
from tablequeue.engines.mssql.fair import fair_words
from tablequeue.engines.mssql.listener import SQLServerPoll
from tablequeue.engines.mssql.messages import SQLServerMessages
from tablequeue.engines.mssql.refusals import (
    DEADLOCK,
    DUPLICATES,
    LOCK_TIMEOUT,
    NOT_GRANTED,
    is_driver_error,
    number_of,
    refused_by,
    translated,
)
from tablequeue.engines.mssql.streams import SQLServerStaging, SQLServerStreams
from tablequeue.engines.mssql.topics import SQLServerRanges, SQLServerTopics
from tablequeue.engines.mssql.variables import declared
from tablequeue.engines.procedure_syntax import ProcedureSyntax
from tablequeue.engines.table import Table
from tablequeue.engines.texts import IN_TURN, Client, quoted_role, ready_states
from tablequeue.errors import TablequeueError
from tablequeue.model.definition import Definition
from tablequeue.model.names import PART

# The unique indexes that two calls may violate which come at once, by the end of their names: see `is_transient`.
REPEATED = r"front|key|streams|writers|schedules|paused|progress|task_results|chords|chord_parts|s\d+"
# The orders without a clustered index on the identity: see `create`.
SCATTERED = ("heap", "due")


# An example of a row, for printed SQL.
ROW = {
    **dict.fromkeys(("id", "new_id", "attempts", "message", "on_id"), 1),
    **dict.fromkeys(("place", "priority", "delay"), 0),
    **dict.fromkeys(("pushed_at", "due", "popped_at"), "2030-01-01T00:00:00"),
    "state": "ready",
    "token": "0" * 32,
    "on_table": "tq_work",
    "on_dead": "wait",
    "payload": "31",
}

# The types of columns in table variables. Keys and groups are bytes in the queue's table, and text in the history.
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
# The same in the tables, where keys and groups of a queue are bytes.
STORED = {
    **{column: f"{kind} null" for column, kind in TYPES.items()},
    "outcome": "varchar(9) collate Latin1_General_100_BIN2 null",
    **dict.fromkeys(("group_key", "dedup_key"), "varbinary(1020) null"),
}
READS = common_expressions("cast(null as datetime2(6))")
BYTES = {column: f"convert(nvarchar(510), {{}}{column}) as {column}" for column in ("group_key", "dedup_key")}


# The stored procedure of a queue that every queue with procedures has.
THERE = "select name from sys.procedures where object_id = object_id(N'{queue}_push')"


def after(seconds: str, start: str = "@now") -> str:
    """Return SQL for `start` plus `seconds`, a float. DATEADD itself takes 32-bit integers only."""
    minutes = f"floor({seconds} / 60)"
    return (
        f"dateadd(microsecond, cast(round(({seconds} - {minutes} * 60) * 1e6, 0) as int),\n"
        f"    dateadd(minute, cast({minutes} as int), {start}))"
    )


class SQLServerTable(Table):
    """A table whose batches return text as bytes, which the cursor decodes; see answers.py."""

    def statements(self, operation: str, state: str = "ready") -> list[str]:
        if (operation, state) not in self._compiled:
            texts = [name for name in TEXTS if name != "payload" or self.definition.payload != "bytes"]
            batches = self.engine.split(self.engine.render(operation, self, state))
            self._compiled[operation, state] = [self.engine.compile(in_bytes(batch, texts)) for batch in batches]
        return self._compiled[operation, state]


class SQLServer(Engine):
    name = "mssql"
    messages: ClassVar[SQLServerMessages] = SQLServerMessages()
    topics = SQLServerTopics()
    reads = SQLServerReads()
    ranges = SQLServerRanges(messages, topics, Engine.range_reads)
    streams = SQLServerStreams()
    staging = SQLServerStaging()
    moving = SQLServerMoving()
    batches = SQLServerBatches()
    batch_parameter = "@batch_id"
    dependencies = SQLServerDependencies()
    progress = SQLServerProgress()
    task_results = SQLServerTaskResults()
    checks = CHECKS
    quotes = "[]"
    savepoints_stay = False
    listener = SQLServerPoll
    drivers = ("mssqlpython", "pyodbc", "pymssql")
    # A heap promises no order; by id is what the index gives for nothing.
    ready_index: ClassVar = {
        "heap": "id",
        "fifo": "id",
        "lifo": "id",
        "due": "due_at, id",
        "priority": "priority desc, id",
        "fair": "slot, id",
    }
    order_by: ClassVar = {**ready_index, "lifo": "id desc", "fair": IN_TURN}
    slot = "slot"
    # JSON is stored as the text that was pushed. It has no check by ISJSON: before SQL Server 2022 that accepts objects
    # and arrays only, and OUTPUT ... INTO, which writes the history, refuses a table that has a check.
    payload_types: ClassVar = {"json": "nvarchar(max)", "text": "nvarchar(max)", "bytes": "varbinary(max)"}
    staged_types: ClassVar = payload_types
    expressions: ClassVar = {
        "live_columns": BYTES | READS["live_columns"],
        "history_columns": READS["history_columns"],
        "log_columns": READS["log_columns"]
        | {
            "group_key": BYTES["group_key"],
            "dedup_key": "cast(null as nvarchar(510)) as dedup_key",
            "errors": "cast(null as nvarchar(max)) as errors",
        },
        "claimed": BYTES,
        "claimed_types": typed(TYPES),
        "history_types": typed(TYPES),
        **tables(STORED),
    }
    no_group = "0x"
    own_clock = "sysutcdatetime()"
    clock = f"coalesce(cast(:now as datetime2(6)), {own_clock})"
    client = Client(
        "sqlcmd",
        "Run it between `begin transaction` and `commit transaction`: all or nothing, with its locks held to the end.",
        {
            "bytes": "0x00ff",
            **dict.fromkeys(("token", "claim"), f"'{dashed('0' * 32)}'"),
            # Two hexadecimal digits are JSON, text and bytes. Of a row, a text reads the fields that it needs.
            "payloads": """N'["31", "32"]'""",
            "rows": f"N'{json.dumps([ROW])}'",
            "by_group": """N'[{"slot": 0, "number": 1}]'""",
            **dict.fromkeys(("all_holes", "consumed", "success"), "1"),
            **dict.fromkeys(("within", "force"), "0"),
        },
        "@p_{}",
        "A variable that begins with @p_ is a parameter",
        "\n\ngo\n\n",
    )
    until_token = (
        "case when datediff_big(microsecond, @now, spent_until) > (burst - 1) * step "
        "then (datediff_big(microsecond, @now, spent_until) - (burst - 1) * step) / 1e6 else 0e0 end"
    )
    procedure_syntax = ProcedureSyntax(
        "@p_{}",
        partial(quoted_role, "[]"),
        between="\ngo\n\n",
        words={"of_inserted": "", "of_deleted": ""},
        kept=kept,
        there=THERE,
    )

    def payload_start(self, definition: Definition) -> str:
        return super().payload_start(definition).replace("substr(", "substring(")

    def words(self, table: Table, state: str = "ready") -> dict[str, str]:
        words = super().words(table, state)
        definition = table.definition
        in_bytes = definition.payload == "bytes"
        turns = f"{words['turns']} (group_key)"
        grouped = definition.grouped
        target_turns = f"{words['target']}{PART}turns (group_key)"
        target_grouped = table.dead_letters is not None and table.dead_letters.definition.grouped
        return {
            **words,
            **fair_words(table),
            # The filter of the index of a state, and the state itself if the index has more than one.
            "default_due": "@now" if definition.order == "due" else "null",
            "in_state": f"{ready_states(definition)} and state = 'ready'"
            if state == "ready" and definition.order == "due"
            else f"state = '{state}'",
            "clustered": "nonclustered" if definition.order in SCATTERED else "clustered",
            # The consumers of a strict queue wait for its head; all other consumers skip locked rows.
            "claim_locks": f"rowlock, {'' if definition.strict else 'readpast, '}updlock, readcommittedlock",
            "now_and_delay": after("@delay"),
            "now_and_lease": after("@lease"),
            "now_and_expires": after("@expires"),
            "free_until": after("free.seconds"),
            "pushed_until": after("given.seconds", "message.pushed_at"),
            "now_less_age": after("(-@age)"),
            "now_and_given_delay": after("given.delay"),
            "now_and_head_delay": after("coalesce(head.delay, 0)"),
            # JSON has no bytes: they are sent as hexadecimal digits (style 2).
            "payload_of_value": "convert(varbinary(max), batch.value, 2)" if in_bytes else "batch.value",
            "payload_of_row": "convert(varbinary(max), given.payload, 2)" if in_bytes else "given.payload",
            # The notes of a grouped queue for promote; see `create_groups`.
            "note_inserted": f"output inserted.group_key into {turns}\n" if grouped else "",
            "note_deleted": f"output deleted.group_key into {turns}\n" if grouped else "",
            # The notes of the queue to which dead letters move, if that is grouped.
            "note_in_target": f"output inserted.group_key into {target_turns}\n" if target_grouped else "",
            "note_from_target": f"output deleted.group_key into {target_turns}\n" if target_grouped else "",
            "and_in_run": ", in_run" if grouped else "",
            "note_batch": (
                f"insert into {turns}\nselect group_key from @batch where fresh = 1\n"
                "group by group_key order by min(place);\n"
                if grouped
                else ""
            ),
        }

    def topic_words(self, table: Table) -> dict[str, str]:
        # The lowest and the highest id of a run that are in the range from @begins to @ends.
        words = super().topic_words(table)
        return words | {
            "low": "iif(run.first_offset < @begins, run.first_id + @begins - run.first_offset, run.first_id)",
            "high": "iif(run.first_offset + run.last_id - run.first_id > @ends, "
            "run.first_id + @ends - run.first_offset, run.last_id)",
        }

    def after(self, seconds: str) -> str:
        return after(seconds)

    def expiry_words(self, expires: float) -> dict[str, str]:
        return super().expiry_words(expires) | {
            "until": f", {after('@expires')}",
            "own_until": f", {after(f'coalesce(given.expires, {expires!r}e0)')}",
            "in_time": " and (expires_at is null or expires_at > @now)",
        }

    def claimable(self, definition: Definition) -> str:
        states = ready_states(definition)
        return f"{states} and due_at <= @now" if definition.order == "due" else states

    def unpaused(self, table: Table, moment: str | None = "@now") -> str:
        return super().unpaused(table, moment)

    def declared(self, text: str, words: Mapping[str, str]) -> str:
        return declared(text, words)

    def split(self, text: str) -> list[str]:
        return batches_in(text)

    def table(
        self, name: str, definition: Definition, table_name: str | None = None, topic: Table | None = None
    ) -> SQLServerTable:
        return SQLServerTable(self, name, definition, table_name, topic)

    def compile(self, text: str) -> str:
        # The cursor binds it: the text depends on the driver, and on which parameters are null.
        return Batch(text)

    # -- connections and errors ------------------------------------------------------------------------------------

    def adopt(self, dbapi: Any) -> RawConnection:
        batches = (batch for text in ("session", "server") for batch in self.shared.statements(text))
        connection, place = adopt(dbapi, batches)
        self.settle(place)
        return connection

    def commits_each(self, dbapi: Any) -> bool:
        # pymssql's attribute of that name is a method.
        if not getattr(dbapi, "autocommit_state", dbapi.autocommit):
            return False
        return SQLServerCursor(dbapi, ours=False).execute("select @@trancount").fetchone() == (0,)

    def join(self, dbapi: Any) -> Cursor:
        return SQLServerCursor(dbapi, ours=False, first=self.shared.statement("isolation_level"))

    def translate(self, error: Exception) -> TablequeueError | None:
        return translated(error)

    def is_transient(self, error: Exception) -> bool:
        if not is_driver_error(error):
            return False
        number = number_of(error)
        # Two calls at once promoted in the same group, pushed the same key, inserted the row of the same stream, writer
        # or schedule, detached the same message of a subscription, reported first on the same claim, or stored the same
        # result or part of a chord. A retry would not help against any other duplicate.
        if number in DUPLICATES:
            return bool(re.search(f"__({REPEATED})$", refused_by(error) or ""))
        return number in (DEADLOCK, LOCK_TIMEOUT, NOT_GRANTED)

    # -- values ----------------------------------------------------------------------------------------------------

    def literal(self, text: str) -> str:
        return super().literal(text) if text.isascii() else f"N{super().literal(text)}"

    def dump_time(self, time: datetime) -> str:
        # As text: pymssql sends a datetime with milliseconds only. datetime2 reads this form in every language setting.
        return time.replace(tzinfo=None).isoformat(timespec="microseconds")

    def load_time(self, value: Any) -> datetime:
        return (datetime.fromisoformat(value) if isinstance(value, str) else value).replace(tzinfo=UTC)

    def dump_ids(self, ids: Sequence[int]) -> str:
        # Sorted, so that two calls that lock some of the same rows do not deadlock.
        return str(sorted(set(ids)))

    def load_ids(self, ids: str) -> list[int]:
        return json.loads(ids)
