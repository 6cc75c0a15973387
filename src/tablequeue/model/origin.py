"""Where a dead letter in another queue came from, as a header of it says. No database here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

ORIGIN = "tablequeue-origin"
"""The header."""


class Origin(NamedTuple):
    """Where a dead letter in another queue came from."""

    queue: str
    table: str
    """The table of the queue, which it keeps when it is renamed."""
    id: int
    attempts: int
    key: str | None

    @classmethod
    def of(cls, headers: Mapping[str, Any]) -> Origin | None:
        """Return the origin of a message, from its headers. None if it was pushed to the queue."""
        header: Any = headers.get(ORIGIN)
        match header:
            case {"queue": str(queue), "table": str(table), "id": int(id), "key": str() | None as key}:
                attempts = header.get("attempts")
                return cls(queue, table, id, attempts if isinstance(attempts, int) else 0, key)
        return None
