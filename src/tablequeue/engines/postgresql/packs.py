"""Packs: a claim of many messages is one row with arrays of them, and so is its completion. See `create_packs`.

A claim that changes each row, and a completion that deletes it, were most of what draining costs; a pack of 1,000 is
claimed and completed in two thirds of the time. A consumer that finishes, fails or extends some of its messages has
the pack unpacked first, which costs as much as was saved. So the next claims are row by row.
"""

from __future__ import annotations

from dataclasses import dataclass

from tablequeue.engines.base import Table
from tablequeue.model.definition import Definition
from tablequeue.model.names import PART

# The messages of `pack`, one by one.
PACK_MESSAGES = """unnest(
        pack.ids, pack.priorities, pack.pushed_ats, pack.due_ats, pack.producers, pack.headers, pack.payloads
    ) as message (id, priority, pushed_at, due_at, producer, headers, payload)"""


class PackedTable(Table):
    """A table, with the number of its next claims that must be row by row."""

    by_row = 0


@dataclass(frozen=True)
class Packs:
    """Decides which claims are packs."""

    least: int = 200
    """Minimum messages of a pack. Rate relative to row by row: 1.0 with 100, 1.15 with 200, 1.45 with 1,000."""
    most: int = 10_000
    """Maximum messages of a pack, because an array is limited to a gigabyte."""
    unpacked: int = 10
    """Number of claims row by row after a pack had to be unpacked.

    So if a consumer finishes its messages one by one, only every eleventh claim is a pack, which costs more than
    it saves.
    """
    largest: int = 2_000
    """Maximum bytes of payload and headers of a message in a pack. A larger message is moved only once, when done."""

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
        """Return whether the next claim, of `n` messages, is to be a pack.

        Not of messages that expire. Not in a queue with limits, whose places note the messages.
        """
        definition = table.definition
        if n < self.least or not may_pack(definition) or definition.expires or definition.limited:
            return False
        assert isinstance(table, PackedTable)
        if table.by_row:
            table.by_row -= 1
            return False
        return True

    def unpacked_one(self, table: Table) -> None:
        """Make the next claims go row by row."""
        assert isinstance(table, PackedTable)
        table.by_row = self.unpacked


def may_pack(definition: Definition) -> bool:
    """Return whether a message in progress may be in a pack: claimed in it now, or before an `alter`.

    Not in a queue with groups: the head of a group must stay in its index, and the messages of a pack have no group.
    Not at most once, because a claim moves its messages to the history. Not in a queue with batches: the row of a
    message tells that its batch is not at its end.
    """
    apart = definition.grouped or definition.fair or definition.batches
    return definition.delivery == "at_least_once" and not apart
