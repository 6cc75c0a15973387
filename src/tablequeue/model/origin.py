"""Where a dead letter in another queue came from, as a header of it says. No database here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

ORIGIN = "tablequeue-origin"
"""The header."""


class Origin(NamedTuple):
    """Where a dead letter in another queue came from."""

    queue: str
    table: str | None
    """The table of the queue, which it keeps when it is renamed; None of a message that older versions have moved."""
    id: int
    attempts: int
    key: str | None

    @classmethod
    def of(cls, headers: Mapping[str, Any]) -> Origin | None:
        """Return the origin of a message, from its headers. None if it was pushed to the queue."""
        header: Any = headers.get(ORIGIN)
        match header:
            case {"queue": str(queue), "id": int(id), "key": str() | None as key}:
                attempts = header.get("attempts")
                return cls(queue, header.get("table"), id, attempts if isinstance(attempts, int) else 0, key)
        return None

    def is_from(self, name: str, table: str) -> bool:
        """Whether it is the queue of that name, or of that table if the origin has one."""
        return self.queue == name if self.table is None else self.table == table
