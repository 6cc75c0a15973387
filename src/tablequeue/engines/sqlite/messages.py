"""The operations that differ on SQLite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from functools import partial

from tablequeue.engines.catalogue import Catalogue
from tablequeue.engines.connection import Cursor
from tablequeue.engines.limits import Limits
from tablequeue.engines.low_water import Claim
from tablequeue.engines.messages import Messages
from tablequeue.engines.params import Params
from tablequeue.engines.sqlite.connection import atomic
from tablequeue.engines.sqlite.fair import SQLiteFair
from tablequeue.engines.staging import Staging
from tablequeue.engines.streams import Streams
from tablequeue.engines.table import Statements, Table
from tablequeue.engines.task_results import TaskResults
from tablequeue.engines.texts import Row
from tablequeue.engines.topics import Topics

# Number of payloads in one statement of push_many: 270,000 messages a second, against 80,000 with one statement each.
# Any number from 20 to 500 is as fast, and so is one JSON array, which cannot hold bytes.
PUSHED_AT_ONCE = 50


class SQLiteLimits(Limits):
    """One transaction writes at a time, so the claim itself counts the messages in progress."""

    counts_places = True

    def _limited(self, table: Table, claim: Claim, removes: bool = False) -> Claim:
        """Return the claim within the limits of the queue, if it has some."""

        def within(cursor: Cursor, table: Table, params: Params) -> list[Row]:
            some = partial(claim, cursor, table)
            return [*self.claim_within(cursor, table, params, some, removes=removes)]

        return within if table.definition.limited else claim


class SQLiteMessages(SQLiteLimits, Messages):
    fair = SQLiteFair()

    def push_many(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        return insert_many(cursor, table.statement("push_many"), params)

    def push_each(self, cursor: Cursor, table: Table, params: Params) -> list[int | None]:
        with atomic(cursor):
            return [self.push(cursor, table, {**params, **row}) for row in params["rows"]]

    def find_keys(self, cursor: Cursor, table: Table, params: Params) -> dict[str, int]:
        return super().find_keys(cursor, table, {"keys": json.dumps(params["keys"])})

    def _in_order(self, table: Table, claim: Claim) -> Claim:
        return super()._in_order(table, self._limited(table, claim, removes=claim == self._take))

    def claim_run(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        return table.bound(self._limited, super().claim_run)(cursor, table, params)

    def take(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        return super().take(cursor, table, at_one_time(cursor, table, params))

    def expire(self, cursor: Cursor, table: Table, params: Params) -> int:
        expired = super().expire(cursor, table, at_one_time(cursor, table, params))
        if expired and table.definition.grouped:
            # A trigger has made the next messages the heads of their groups: scheduled if they have a due time.
            expired += self.sweep(cursor, table, params | {"max_attempts": table.definition.max_attempts})
        return expired

    def close_slots(self, cursor: Cursor, table: Table, params: Params) -> None:
        """Do nothing: each claim counts all messages in progress."""

    def _sweep(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        moved = super()._sweep(cursor, table, params)
        if moved and table.definition.grouped:
            # The message after a head that became a dead letter may be due already. The trigger has no clock to tell.
            moved += super()._sweep(cursor, table, params)
        return moved


def at_one_time(cursor: Cursor, table: Table, params: Params) -> Params:
    """Return the parameters of several statements that must use the same time."""
    if params["now"] is not None:
        return params
    (now,) = cursor.execute(f"select {table.engine.clock}", params).fetchone()
    return {**params, "now": now}


def insert_many(cursor: Cursor, statement: str, params: Params) -> list[int]:
    """Insert `params["payloads"]`, some in a statement, for which `(:payload)` stands. Return their ids."""
    payloads = params["payloads"]
    if not payloads:
        return []
    with atomic(cursor):
        for start in range(0, len(payloads), PUSHED_AT_ONCE):
            some = payloads[start : start + PUSHED_AT_ONCE]
            named = {f"payload_{place}": payload for place, payload in enumerate(some)}
            rows = ", ".join(f"(:{name})" for name in named)
            cursor.execute(statement.replace("(:payload)", rows), params | named)
    (last,) = cursor.execute("select last_insert_rowid()").fetchone()
    return list(range(last - len(payloads) + 1, last + 1))


class SQLiteStreams(SQLiteLimits, Streams):
    fair = SQLiteFair()

    def _in_order(self, table: Table, claim: Claim) -> Claim:
        return super()._in_order(table, self._limited(table, claim))


class SQLiteStaging(Staging):
    def dump_words(self, words: Sequence[str]) -> str:
        return json.dumps(words)


class SQLiteCatalogue(Catalogue):
    def lock(self, cursor: Cursor, table: Statements, params: Params) -> None:
        """Do nothing: only one transaction writes at a time."""

    def _alter(self, cursor: Cursor, table: Table, text: str, params: Params) -> None:
        """Run a text. A column that is there already stays: SQLite has no `add column if not exists`."""
        for statement in table.statements(text):
            try:
                cursor.execute(statement, params)
            except sqlite3.OperationalError as error:
                if not str(error).startswith("duplicate column name"):
                    raise


class SQLiteTaskResults(TaskResults):
    def read_results(self, cursor: Cursor, table: Table, params: Params) -> dict[str, bytes]:
        return super().read_results(cursor, table, params | {"keys": json.dumps(params["keys"])})


class SQLiteTopics(Topics):
    def push_many(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        return insert_many(cursor, table.statement("topic_push_many"), params)

    def push_each(self, cursor: Cursor, table: Table, params: Params) -> list[int | None]:
        return [self.push(cursor, table, {**params, **row}) for row in params["rows"]]
