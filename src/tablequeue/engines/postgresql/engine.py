"""PostgreSQL: SKIP LOCKED, COPY, a low-water mark that skips dead index entries, and one round trip a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, ClassVar

import psycopg
from psycopg.rows import tuple_row

from tablequeue.engines.columns import TIMES, common_expressions, tables, typed
from tablequeue.engines.connection import Cursor
from tablequeue.engines.engine import Engine
from tablequeue.engines.fair import HIGHEST, LOWEST, STEPS
from tablequeue.engines.postgresql.asyncpg_cursor import AsyncpgCursor
from tablequeue.engines.postgresql.checks import CHECKS
from tablequeue.engines.postgresql.connection import (
    PostgreSQLConnection,
    adopt,
    check_settings,
    reading_text,
    refused_server,
)
from tablequeue.engines.postgresql.listener import LOCKS, PostgreSQLListener
from tablequeue.engines.postgresql.messages import PostgreSQLMessages, PostgreSQLTaskResults
from tablequeue.engines.postgresql.reads import PostgreSQLReads
from tablequeue.engines.postgresql.refusals import is_transient, translated
from tablequeue.engines.postgresql.staging import PostgreSQLStaging
from tablequeue.engines.postgresql.topics import (
    PostgreSQLRangeReads,
    PostgreSQLRanges,
    PostgreSQLTopics,
)
from tablequeue.engines.postgresql.user_tables import PostgreSQLUserTables
from tablequeue.engines.postgresql.values import Ids, load_time
from tablequeue.engines.procedure_syntax import ProcedureSyntax
from tablequeue.engines.table import Table
from tablequeue.engines.texts import IN_TURN, Client, Row, compile_text, quoted_role
from tablequeue.engines.words import ending
from tablequeue.errors import TablequeueError
from tablequeue.model.attempts import FIRST_ERRORS, LAST_ERRORS
from tablequeue.model.definition import Definition
from tablequeue.model.message import DUE_AT, ID
from tablequeue.model.names import PART

# A slot of 64 bits: two of 3,000,000 groups share one with a chance of one in 4,000,000.
SLOT = "hashtextextended(coalesce(group_key, ''), 0)"
# The columns of the rows that functions return.
TYPES = {
    "id": "bigint",
    "payload": "{payload_type}",
    "headers": "json",
    **dict.fromkeys(("attempts", "priority"), "integer"),
    **dict.fromkeys(("state", "outcome", "group_key", "dedup_key", "producer", "consumer"), "text"),
    **dict.fromkeys(TIMES, "timestamptz"),
    "errors": "jsonb",
}
# The seeds of the advisory locks of a topic and of a subscription, after those of queues in listener.py.
TOPIC_LOCKS = (8318836324, 8318836325, 8318836326)
# The ids of a segment of a topic's log.
SEGMENT = 1_000_000_000
COMMON = common_expressions("cast(null as timestamptz)")


class PostgreSQL(Engine):
    name = "postgresql"
    messages: ClassVar[PostgreSQLMessages] = PostgreSQLMessages()
    topics = PostgreSQLTopics()
    range_reads = PostgreSQLRangeReads()
    ranges = PostgreSQLRanges(messages, topics, range_reads)
    reads = PostgreSQLReads()
    staging = PostgreSQLStaging()
    task_results = PostgreSQLTaskResults()
    user_tables = PostgreSQLUserTables()
    checks = CHECKS
    drivers = ("psycopg",)
    async_drivers: ClassVar = {
        "psycopg": {},
        "asyncpg": {"ssl": "sslmode", "prepared_statement_cache_size": "", "prepared_statement_name_func": ""},
    }
    # A heap promises no order; by id is what the index gives for nothing.
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
    batch_parameter = "cast(:batch_id as bigint)"
    # json, not jsonb: it keeps the text that was pushed, with every number and escape, and builds no parse tree.
    payload_types: ClassVar = {"json": "json", "text": "text", "bytes": "bytea"}
    staged_types: ClassVar = payload_types
    expressions: ClassVar = {
        **COMMON,
        **{
            values: COMMON[values]
            | {
                column: f"cast({COMMON[values][column]} as {kind})"
                for column, kind in TYPES.items()
                if column in COMMON[values] and kind not in ("bigint", "integer")
            }
            for values in ("queue_values", "history_values")
        },
        "claimed": {"payload": "{payload_text}", "headers": "{headers_text}", "errors": "{errors_text}"},
        "claimed_types": typed(TYPES),
        "message_types": typed(TYPES),
        **tables(TYPES),
    }
    # Not clock_timestamp(): it is volatile, so no index could serve a comparison with it. Not now(): a lease must
    # not begin when the caller's transaction began.
    own_clock = "statement_timestamp()"
    clock = f"coalesce(cast(:now as timestamptz), {own_clock})"
    until_token = (
        f"cast(greatest(0, greatest(0, extract(epoch from spent_until - {clock}) * 1000000) "
        "- (burst - 1) * step) / 1000000 as float8)"
    )
    client = Client(
        "psql",
        "With `psql --single-transaction` it is all or nothing.",
        {
            "bytes": r"'\x00ff'",
            "payloads": "array['1', '2']",
            "priorities": "array[0, 0]",
            "groups": "array['', '']",
            "starts": "array[0, -9223372036854775808]",
            "above": "array[9223372036854775807, -9223372036854775808]",
            "ends": "array[9223372036854775807, 0]",
            **dict.fromkeys(("keys", "dues", "delays", "push_each.headers"), "array[null, null]"),
            "attempts": "array['attempt']",
            "ids": "array[1]",
            "fail.delays": "array[0]",
            "stage.payload": "array['1', '2']",
            "stage.priority": "null",
            "stage.group": "null",
            "session": "pg_backend_pid()",
            "options": "''",
        },
    )
    reserved = frozenset({"collation", "concurrently", "lateral", "tablesample"})
    errors_abort = True
    listener = PostgreSQLListener
    low_water = True
    overlaps = True
    _pooled = False
    procedure_syntax = ProcedureSyntax(
        "p_{}",
        partial(quoted_role, '""'),
        "public",
        kinds=("queue", "topic", "subscription"),
        there=(
            "select proname from pg_proc where pronamespace = cast('{quoted_schema}' as regnamespace) "
            "and proname in ('{table}_push', '{table}_pop')"
        ),
        words={
            "payload_text": "payload",
            "headers_text": "headers",
            "errors_text": "errors",
            "of_claimed": "*",
        },
    )

    def payload_start(self, definition: Definition) -> str:
        start = super().payload_start(definition)
        return start.replace("{}payload", "cast({}payload as text)") if definition.payload == "json" else start

    def words(self, table: Table, state: str = "ready") -> dict[str, str]:
        definition = table.definition
        array_type = "bytea" if definition.payload == "bytes" else "text"
        waiting, notifying, pushing = (f"hashtextextended('{table.channel}', {key})" for key in LOCKS)
        words = super().words(table, state)
        may_end = ending("finished", words["queue"])
        return {
            **words,
            # Of a queue with batches: which of them the rows of `finished` may end; that, as the end of a completion;
            # and the column that it needs.
            "may_end": may_end,
            "then_ending": f"\n)\nselect id, {may_end} as ending\nfrom finished" if definition.batches else "",
            "and_batch": ", batch_id" if definition.batches else "",
            # In a full array of errors: the place of the last one of the first, and that of the first one of the last.
            "last_first": str(FIRST_ERRORS - 1),
            "before_last": str(LAST_ERRORS - 2),
            "array_type": array_type,
            # JSON as text, which every driver returns unchanged. The procedures return JSON.
            "payload_text": "cast(payload as text)" if definition.payload == "json" else "payload",
            "headers_text": "cast(headers as text)",
            "errors_text": "cast(errors as text)",
            "staged": f"{words['queue']}{PART}parts",
            "channel": table.channel,
            "ids": f"cast('{words['queue']}__ids' as regclass)",
            # The start of an index, or where a sweep or a look begins in it: see walks.py.
            "since_sweep": _since(f"{self.clock} - cast(:since_sweep as float8) * interval '1 second'"),
            "from_lease": _since(f"{self.clock} + cast(:until_lease as float8) * interval '1 second'"),
            "waiting_lock": waiting,
            "pushing_lock": pushing,
            # A claim finds its locked rows by their physical position, instead of a search for each id: that takes 0.92
            # of the server's time for a claim of 1,000. If another transaction has changed a row since the statement
            # began and it is ready again, the claim locks the row but does not find it. A claim above a mark that finds
            # nothing starts again at once. A claim in a lifo queue does not: there, with 8 threads that pop and release
            # the same message, one pop in 800 returned nothing.
            "ring_of_session": f"{words['table']}{PART}ring",
            "ring_steps": str(STEPS),
            "ring_starts": f"array[served, {LOWEST}]",
            "ring_above": f"array[{HIGHEST}, {LOWEST}]",
            "ring_ends": f"array[{HIGHEST}, served]",
            "row": "ctid" if "marked" in table.plan.met else "id",
            "notifying_lock": notifying,
        }

    def topic_words(self, table: Table) -> dict[str, str]:
        words = super().topic_words(table)
        # By the table, not by its name, which may have its schema or not.
        locked = zip((words["log"], words["ranges"], words["log"]), TOPIC_LOCKS, strict=True)
        parts = f"{words['log']}{PART}parts"
        sequencing, claiming, trimming = (f"hashoidextended(cast('{name}' as regclass), {key})" for name, key in locked)
        return {
            **words,
            "parts": parts,
            "segment": f"cast({SEGMENT} as bigint)",
            "claim_range": f"{words['ranges']}_claim",
            "read_range": f"{words['ranges']}_read",
            "pump_range": f"{words['ranges']}_pump",
            "sequence_lock": sequencing,
            "range_lock": claiming,
            "range_key": str(TOPIC_LOCKS[1]),
            "trim_lock": trimming,
        }

    def after(self, seconds: str) -> str:
        return f"{self.clock} + cast({seconds} as float8) * interval '1 second'"

    def compile(self, text: str) -> str:
        return compile_text(text, self.dialect)

    # -- connections and errors ------------------------------------------------------------------------------------

    def adopt(self, dbapi: Any) -> PostgreSQLConnection:
        connection, place = adopt(dbapi, self.shared.statement("session"))
        self.settle(place)
        self._pooled = connection.pooled
        return connection

    def commits_each(self, dbapi: Any) -> bool:
        driver = getattr(dbapi, "driver_connection", dbapi)
        if type(driver).__module__.startswith("asyncpg"):
            return dbapi.autocommit and not driver.is_in_transaction()
        return driver.autocommit and driver.info.transaction_status == psycopg.pq.TransactionStatus.IDLE

    def join(self, dbapi: Any) -> Cursor:
        check_settings(dbapi)
        if self._pooled:
            dbapi.prepare_threshold = None
        return reading_text(dbapi.cursor(row_factory=tuple_row))

    def join_async(self, adapted: Any) -> Cursor:
        if type(adapted.driver_connection).__module__.startswith("asyncpg"):
            return AsyncpgCursor(adapted)
        return super().join_async(adapted)

    def translate(self, error: Exception) -> TablequeueError | None:
        if isinstance(error, AssertionError):  # SQLAlchemy's, of a version that it cannot read
            return refused_server(str(error))
        return translated(error)

    def is_transient(self, error: Exception) -> bool:
        return is_transient(error)

    # -- values ----------------------------------------------------------------------------------------------------

    def dump_time(self, time: datetime) -> datetime:
        return time

    def load_time(self, value: Any) -> datetime:
        return load_time(value)

    def dump_ids(self, ids: Sequence[int]) -> Ids:
        return Ids(ids)

    def dump_delays(self, delays: Mapping[int, float]) -> list[float]:
        return [float(seconds) for seconds in delays.values()]

    def rank(self, order: str) -> Callable[[Row], Any] | None:
        # As text, times with different offsets from UTC do not sort correctly.
        return (lambda row: (load_time(row[DUE_AT]), row[ID])) if order == "due" else super().rank(order)


def _since(time: str) -> str:
    return f"coalesce({time}, '-infinity')"
