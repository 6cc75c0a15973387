"""The low-water mark, for engines whose index keeps entries of messages that are gone while somebody may see them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from tablequeue.definition import Definition
from tablequeue.engines.base import Cursor, Engine, Params, Table
from tablequeue.engines.texts import Row


@dataclass(slots=True)
class Mark:
    """The highest id that was claimed; every one up to it was seen not to be ready. In a grouped queue, of notes."""

    id: int = 0


class MarkedTable(Table):
    """A table and the mark of this process in it.

    Under a long-open snapshot the index keeps an entry for each message that was ever ready, and a claim walks all
    of them. On PostgreSQL 1,800 claims a second fell to 200 within 10,000 messages, and stayed at 2,500 with the
    mark; MariaDB does the same. It is only a hint. Messages that become ready below it (released, failed, committed
    late) are found when this process sweeps, at the latest a second later, and at once when nothing else is ready.
    """

    def __init__(self, engine: Engine, name: str, definition: Definition, table_name: str | None = None) -> None:
        super().__init__(engine, name, definition, table_name)
        self.mark = Mark()

    def look_after(self, id: int) -> None:
        """Claim what is after `id` again.

        By a new mark: claims under way raise the one that they began at, else those of a busy process's other threads
        would undo this before anybody came to claim.
        """
        self.mark = Mark(min(self.mark.id, id))


def keeps_low_water(definition: Definition) -> bool:
    """Where messages become ready mostly in the order of their ids. The heads of groups do not."""
    return definition.order in ("heap", "fifo") and not definition.grouped


class LowWater(Engine):
    """What such an engine does about the mark, around operations of its own."""

    @abstractmethod
    def commits(self, cursor: Cursor) -> bool:
        """Whether what is claimed stays claimed: a caller's transaction may yet be rolled back."""

    def claimable(self, definition: Definition) -> str:
        mark = " and id > :low_water" if keeps_low_water(definition) else ""
        return super().claimable(definition) + mark

    def table(self, name: str, definition: Definition, table_name: str | None = None) -> MarkedTable:
        return MarkedTable(self, name, definition, table_name)

    def claim(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        return self._claimed_above(super().claim, cursor, table, params)

    def take(self, cursor: Cursor, table: Table, params: Params) -> list[Row]:
        return self._claimed_above(super().take, cursor, table, params)

    def _claimed_above(
        self, claim: Callable[[Cursor, Table, Params], list[Row]], cursor: Cursor, table: Table, params: Params
    ) -> list[Row]:
        if not keeps_low_water(table.definition):
            return claim(cursor, table, params)
        mark = marked(table).mark if params["now"] is None else Mark()
        rows = claim(cursor, table, params | {"low_water": mark.id})
        if not rows and mark.id:
            rows = claim(cursor, table, params | {"low_water": 0})
        if self.commits(cursor):
            mark.id = rows[-1][0] if rows else 0
        return rows

    def sweep(self, cursor: Cursor, table: Table, params: Params) -> int:
        moved = super().sweep(cursor, table, params)
        marked(table).look_after(0)
        return moved

    def fail(self, cursor: Cursor, table: Table, params: Params) -> str | None:
        state = super().fail(cursor, table, params)
        if state == "ready":
            marked(table).look_after(params["id"] - 1)
        return state

    def release(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        return _ready_again(table, super().release(cursor, table, params))

    def redrive(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        return _ready_again(table, super().redrive(cursor, table, params))

    def redrive_ids(self, cursor: Cursor, table: Table, params: Params) -> list[int]:
        return _ready_again(table, super().redrive_ids(cursor, table, params))


def marked(table: Table) -> MarkedTable:
    assert isinstance(table, MarkedTable)
    return table


def _ready_again(table: Table, ids: list[int]) -> list[int]:
    if ids:
        marked(table).look_after(min(ids) - 1)
    return ids
