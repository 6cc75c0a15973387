"""The operations on messages that need more than one batch on SQL Server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from tablequeue.engines.connection import Cursor
from tablequeue.engines.limits import Limits
from tablequeue.engines.messages import Messages, completed_ids
from tablequeue.engines.mssql.connection import atomic
from tablequeue.engines.mssql.fair import SQLServerFair
from tablequeue.engines.mssql.refusals import DUPLICATES, LOCK_TIMEOUT, is_driver_error, number_of, refused_by
from tablequeue.engines.mssql.steps import STEP, claimed_in_steps, steps_of, steps_of_ids, text_of
from tablequeue.engines.params import Params
from tablequeue.engines.parts import old_and_new
from tablequeue.engines.table import Table
from tablequeue.engines.texts import Row

T = TypeVar("T")

# The options that each row of push_each may have.
ROW_OPTIONS = ("headers", "priority", "group", "key", "due", "delay", "expires")


class SQLServerMessages(Limits, Messages):
    fair = SQLServerFair()

    # -- pushing ---------------------------------------------------------------------------------------------------

    def push(self, cursor: Cursor, table: Table, params: Params) -> int | None:
        try:
            return super().push(cursor, table, params)
        except Exception as error:
            # Another transaction has pushed the key since we looked. With XACT_ABORT on, the error has also doomed the
            # caller's transaction. Then the caller must see it.
            if params["key"] is not None and _is_duplicate_key(error) and (cursor.ours or _can_commit(cursor)):
                return None
            raise

    def push_many(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        """Push by OPENJSON, with every driver.

        Rejected: mssql-python's bulk copy (1.16), which opens a connection of its own, so that it could not be part of
        a transaction, and which returns no ids; and multi-row VALUES, which are limited to 1,000 rows and 2,100
        parameters.
        """
        steps = list(steps_of(params["payloads"], len))
        if len(steps) == 1 and not table.definition.grouped:
            return self._push_step(cursor, table, params, steps[0])
        ids: list[int] = []
        with atomic(cursor):
            for step in steps:
                ids += self._push_step(cursor, table, params, step)
            self._note(cursor, table, [params["group"]])
        return ids

    def push_each(self, cursor: Cursor, table: Table, params: Params) -> list[int | None]:
        rows = params["rows"]
        ids: list[int | None] = []
        for start in range(0, len(rows), STEP):
            ids += self._push_rows(cursor, table, params | {"rows": json_rows(rows[start : start + STEP])})
        return ids

    def move(self, cursor: Cursor, table: Table, params: Params) -> tuple[list[int], list[int]]:
        assert table.source is not None, "of a move"
        rows = [row for step in steps_of_ids(params) for row in self._rows(cursor, table, "move", step)]
        old, new = old_and_new(rows)
        for each in (table, table.source):
            groups = _groups([row for row in rows if not row[1]], 2)
            self._note(cursor, each, ["" for _ in groups] if each.definition.strict else groups)
        return old, new

    def find_keys(self, cursor: Cursor, table: Table, params: Params) -> dict[str, int]:
        return super().find_keys(cursor, table, {"keys": json.dumps(params["keys"], ensure_ascii=False)})

    def _push_step(self, cursor: Cursor, table: Table, params: Params, payloads: Sequence[str | bytes]) -> list[int]:
        texts = json.dumps([text_of(payload) for payload in payloads], ensure_ascii=False)
        return sorted(row[0] for row in self._rows(cursor, table, "push_many", params | {"payloads": texts}))

    def _push_rows(self, cursor: Cursor, table: Table, params: Params) -> list[int | None]:
        while True:
            try:
                with atomic(cursor):
                    return [row[0] for row in self._rows(cursor, table, "push_each", params)]
            except Exception as error:
                # As in push. A transaction of the runner has been rolled back by now, and the runner retries all of it.
                if cursor.ours or not _is_duplicate_key(error) or not _can_commit(cursor):
                    raise

    # -- claiming --------------------------------------------------------------------------------------------------

    def _atomic(self, cursor: Cursor) -> AbstractContextManager[None]:
        return atomic(cursor)

    def _sweep(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        rows = [row for batch in table.statements("sweep") for row in cursor.execute(batch, params).fetchall()]
        self._end_expired(cursor, table, params, [id for id, state in rows if state == "in_progress"])
        return [id for id, _ in rows]

    def _move_dead(self, cursor: Cursor, table: Table, params: Params, ids: Sequence[int]) -> None:
        for start in range(0, len(ids), STEP):
            super()._move_dead(cursor, table, params, ids[start : start + STEP])

    def expire(self, cursor: Cursor, table: Table, params: Params) -> int:
        definition = table.definition
        if not definition.keeps_history or not (definition.grouped or definition.batches):
            return super().expire(cursor, table, params)
        with atomic(cursor):
            rows = self._rows(cursor, table, "expire", params)
            self._note(cursor, table, _groups(rows, 1))
        return len(rows)

    def promote(self, cursor: Cursor, table: Table, params: Params) -> int:
        try:
            with atomic(cursor):
                return super().promote(cursor, table, params)
        except Exception as error:
            # Another transaction has a head locked, and READ_COMMITTED_SNAPSHOT is off. The notes remain for later.
            if is_driver_error(error) and number_of(error) == LOCK_TIMEOUT:
                return 0
            raise

    def _claimed(self, cursor: Cursor, table: Table, operation: str, params: Params) -> list[Row]:
        removes = operation == "take"
        in_steps = operation != "claim_run"
        notes = table.definition.grouped and removes and table.definition.keeps_history

        def claim(params: Params) -> list[Row]:
            return self._rows(cursor, table, operation, params)

        def claim_step(n: int) -> list[Row]:
            step = params | {"n": n}
            if not table.definition.limited:
                return claim(step)
            return [*self.claim_within(cursor, table, step, claim, removes=removes)]

        try:
            if params["n"] <= STEP and in_steps and not notes and not table.definition.limited:
                rows = claim(params)
            else:
                with atomic(cursor):
                    rows = claimed_in_steps(claim_step, params["n"]) if in_steps else claim_step(min(STEP, params["n"]))
                    if notes:
                        self._note(cursor, table, _groups(rows, 8))
        except Exception as error:
            # An open transaction is taking the head of a strict queue, or is changing one of a run: nothing is ready.
            waits = table.definition.strict or not in_steps
            if waits and cursor.ours and is_driver_error(error) and number_of(error) == LOCK_TIMEOUT:
                return []
            raise
        return table.in_order(rows)

    # -- finishing and keeping -------------------------------------------------------------------------------------

    def complete(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        definition = table.definition
        if not definition.batches and not (definition.grouped and definition.keeps_history):
            return [id for done in self._by_ids(cursor, table, super().complete, params) for id in done]
        with atomic(cursor):
            rows = [row for step in steps_of_ids(params) for row in self._rows(cursor, table, "complete", step)]
            self._note(cursor, table, _groups(rows, -1))
        return completed_ids(table, rows)

    def keep_results(self, cursor: Cursor, table: Table, params: Params) -> None:
        for row in params["rows"]:
            self._run(cursor, table, "keep_results", row)

    def release(self, cursor: Cursor, table: Table, params: Params) -> dict[int, bool]:
        return {id: end for done in self._by_ids(cursor, table, super().release, params) for id, end in done.items()}

    def extend(self, cursor: Cursor, table: Table, params: Params) -> dict[int, Any]:
        return {id: end for done in self._by_ids(cursor, table, super().extend, params) for id, end in done.items()}

    def fail(self, cursor: Cursor, table: Table, params: Params) -> dict[int, str]:
        return {id: state for done in self._by_ids(cursor, table, super().fail, params) for id, state in done.items()}

    def cancel(self, cursor: Cursor, table: Table, params: Params) -> list[tuple[int, bool]]:
        account: list[tuple[int, bool]] = []
        with atomic(cursor):
            for step in steps_of_ids(params):
                account += [(id, bool(told)) for id, told in self._rows(cursor, table, "cancel", step)]
        return account

    def cancel_held(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        ids: list[int] = []
        with atomic(cursor):
            for step in steps_of_ids(params):
                ids += super().cancel_held(cursor, table, step)
        return ids

    def told(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        return [id for step in steps_of_ids(params) for id in super(SQLServerMessages, self).told(cursor, table, step)]

    def redrive_ids(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        return [id for done in self._by_ids(cursor, table, super().redrive_ids, params) for id in done]

    def purge(self, cursor: Cursor, table: Table, params: Params) -> int:
        with atomic(cursor) if _notes_apart(table) else nullcontext():
            return super().purge(cursor, table, params)

    def purge_ids(self, cursor: Cursor, table: Table, params: Params) -> int:
        steps = steps_of_ids(params)
        if len(steps) == 1 and not _notes_apart(table):
            return super().purge_ids(cursor, table, params)
        with atomic(cursor):
            return sum(super(SQLServerMessages, self).purge_ids(cursor, table, step) for step in steps)

    def _by_ids(
        self, cursor: Cursor, table: Table, operation: Callable[[Cursor, Table, Params], T], params: Params
    ) -> list[T]:
        """Run an operation on `ids`, STEP at a time. Return what each step returns."""
        steps = steps_of_ids(params)
        if len(steps) == 1:
            return [operation(cursor, table, params)]
        with atomic(cursor):
            return [operation(cursor, table, step) for step in steps]

    def _note(self, cursor: Cursor, table: Table, groups: Iterable[str | None]) -> None:
        if table.definition.grouped and (noted := list(dict.fromkeys(groups))):
            self._run(cursor, table, "note", {"groups": json.dumps(noted, ensure_ascii=False)})


def _notes_apart(table: Table) -> bool:
    """Return whether a purge notes the groups by a statement of its own: OUTPUT ... INTO has only one target."""
    return table.definition.batches and table.definition.grouped


def _groups(rows: Sequence[Row], column: int) -> list[str]:
    return [row[column] for row in sorted(rows, key=lambda row: row[0])]


def json_rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows of push_each as a JSON array of objects."""
    objects = [{name: row[name] for name in ROW_OPTIONS} | {"payload": text_of(row["payload"])} for row in rows]
    return json.dumps(objects, ensure_ascii=False)


def _is_duplicate_key(error: Exception) -> bool:
    """Return whether the unique index of the deduplication keys has refused a row."""
    return is_driver_error(error) and number_of(error) in DUPLICATES and (refused_by(error) or "").endswith("__key")


def _can_commit(cursor: Cursor) -> bool:
    """Return whether the caller's transaction can still commit."""
    return cursor.execute("select xact_state()").fetchone() == (1,)
