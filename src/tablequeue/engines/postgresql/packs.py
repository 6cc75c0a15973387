"""Packs: a claim of many messages is one row of their arrays, and so is its completion. See `sql/create_packs.sql`.

A claim that changes each row, and a completion that deletes it, were most of what draining costs; a pack of 1,000 is
claimed and completed in two thirds of the time. A consumer that finishes, fails or extends some of its messages apart
from the others has the pack unpacked first, which costs as much as was saved. So the next claims are row by row.
"""

from __future__ import annotations

from dataclasses import dataclass

from tablequeue.definition import Definition
from tablequeue.engines.base import Table
from tablequeue.names import PART

# The messages of `pack`, one by one.
PACK_MESSAGES = """unnest(
        pack.ids, pack.priorities, pack.pushed_ats, pack.due_ats, pack.producers, pack.headers, pack.payloads
    ) as message (id, priority, pushed_at, due_at, producer, headers, payload)"""


class PackedTable(Table):
    """A table, and how many more claims through it are to be row by row."""

    by_row = 0


@dataclass(frozen=True)
class Packs:
    """Which claims are packs."""

    least: int = 200
    """Messages from which a claim is packed. Rate over row by row: 1.0 by 100, 1.15 by 200, 1.45 by 1,000."""
    most: int = 10_000
    """Messages up to which it is: a server's array ends at a gigabyte."""
    unpacked: int = 10
    """Claims row by row after a pack that had to be unpacked: of a consumer that finishes its messages one by one, each
    eleventh claim costs more than it saves."""
    largest: int = 2_000
    """Bytes of the payload and the headers of a message in a pack: larger ones are not moved by a claim, but once."""

    def words(self, queue: str) -> dict[str, str]:
        return {
            "packs": f"{queue}{PART}packs",
            "packed": f"{queue}{PART}packed",
            "pack_messages": PACK_MESSAGES,
            "least_packed": str(self.least),
            "most_packed": str(self.most),
            "largest_packed": str(self.largest),
        }

    def has_next(self, table: Table, n: int) -> bool:
        """Whether the claim of `n` messages that comes now is to be a pack."""
        if n < self.least or not may_pack(table.definition):
            return False
        assert isinstance(table, PackedTable)
        if table.by_row:
            table.by_row -= 1
            return False
        return True

    def unpacked_one(self, table: Table) -> None:
        """Have the next claims go row by row."""
        assert isinstance(table, PackedTable)
        table.by_row = self.unpacked


def may_pack(definition: Definition) -> bool:
    """Whether a claim may be a pack: the head of a group stays in its index, and at most once is the history."""
    return definition.delivery == "at_least_once" and not definition.grouped
