"""Packs: a claim of many messages is one row of their arrays, and so is its completion. See `sql/create_packs.sql`.

A claim that changes each row, and a completion that deletes it, were most of what draining costs; a pack of 1,000 is
claimed and completed in two thirds of the time. Whoever finishes, fails or extends some of its messages apart from the
others has it unpacked first, which costs as much as is saved: so after that the next claims are row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from tablequeue.definition import Definition
from tablequeue.engines.base import Cursor, Params, Table, by_history
from tablequeue.engines.low_water import LowWater, MarkedTable
from tablequeue.engines.texts import Row
from tablequeue.names import PART

T = TypeVar("T")

# The messages of `pack`, one by one.
PACK_MESSAGES = """unnest(
        pack.ids, pack.priorities, pack.pushed_ats, pack.due_ats, pack.producers, pack.headers, pack.payloads
    ) as message (id, priority, pushed_at, due_at, producer, headers, payload)"""


class PackedTable(MarkedTable):
    """A table, and how many more claims through it are to be row by row."""

    by_row = 0


class Packs(LowWater):
    """What an engine with packs does about them, around operations of its own."""

    least_packed: ClassVar[int] = 200
    """Messages from which a claim is packed. Rate over row by row: 1.0 by 100, 1.15 by 200, 1.45 by 1,000."""
    most_packed: ClassVar[int] = 10_000
    """Messages up to which it is: a server's array ends at a gigabyte."""
    unpacked: ClassVar[int] = 10
    """Claims row by row after a pack that had to be unpacked: of a consumer that finishes its messages one by one, each
    eleventh claim costs more than it saves."""
    largest_packed: ClassVar[int] = 2_000
    """Bytes of the payload and the headers of a message in a pack: larger ones are not moved by a claim, but once."""

    def words(self, table: Table, state: str = "ready") -> dict[str, str]:
        words = super().words(table, state)
        return {
            **words,
            "packs": f"{words['queue']}{PART}packs",
            "packed": f"{words['queue']}{PART}packed",
            "pack_messages": PACK_MESSAGES,
            "least_packed": str(self.least_packed),
            "most_packed": str(self.most_packed),
            "largest_packed": str(self.largest_packed),
        }

    def table(self, name: str, definition: Definition, table_name: str | None = None) -> PackedTable:
        return PackedTable(self, name, definition, table_name)

    def claim(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        if params["n"] < self.least_packed or not packs(table.definition):
            return super().claim(cursor, table, params)
        assert isinstance(table, PackedTable)
        if table.by_row:
            table.by_row -= 1
            return super().claim(cursor, table, params)
        return self._claimed_above(self._claim_packed, cursor, table, params)

    def complete(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        ids = params["ids"]
        if len(ids) >= self.least_packed and packs(table.definition):
            packed = params | {"ids": self.dump_ids(sorted(ids))}
            if self._rows(cursor, table, by_history("complete_packed", table), packed):
                return list(ids)
        return self._several(super().complete, cursor, table, params)

    def release(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        return self._several(super().release, cursor, table, params)

    def fail(self, cursor: Cursor, table: Table, params: Params) -> str | None:
        return self._one(super().fail, cursor, table, params)

    def extend(self, cursor: Cursor, table: Table, params: Params) -> Any:
        return self._one(super().extend, cursor, table, params)

    def peek(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        # A text of its own: with the packs in it, the index of the state would no longer serve the order of the ids.
        if params["state"] == "in_progress":
            return self._rows(cursor, table, "peek_in_progress", params)
        return super().peek(cursor, table, params)

    # -- private -----------------------------------------------------------------------------------------------------

    def _claim_packed(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        return self._claimed(cursor, table, "claim_packed", params)

    def _several(
        self, finish: Callable[[Cursor, Table, Params], list[int]], cursor: Cursor, table: Table, params: Params
    ) -> list[int]:
        """Finish `ids`; those that were not found may be in a pack."""
        done = finish(cursor, table, params)
        if len(done) < len(params["ids"]) and packs(table.definition):
            self._unpack(cursor, table, params)
            done += finish(cursor, table, params)
        return done

    def _one(
        self, finish: Callable[[Cursor, Table, Params], T | None], cursor: Cursor, table: Table, params: Params
    ) -> T | None:
        """The same of one message."""
        result = finish(cursor, table, params)
        if result is None and packs(table.definition):
            self._unpack(cursor, table, params)
            result = finish(cursor, table, params)
        return result

    def _unpack(self, cursor: Cursor, table: Table, params: Params) -> None:
        """If there is no such pack, another thread may have unpacked it: then its rows are there now, too."""
        assert isinstance(table, PackedTable)
        if self._rows(cursor, table, "unpack", params):
            table.by_row = self.unpacked


def packs(definition: Definition) -> bool:
    """Where a claim may be a pack: the head of a group stays in its index, and at most once is the history."""
    return definition.delivery == "at_least_once" and not definition.grouped
