"""What a check finds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    """A promise that was not kept: which, at which queue, of which messages, and around when."""

    kind: str
    text: str
    queue: str = ""
    uids: tuple[str, ...] = ()
    at: float = 0

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" + (f" (queue {self.queue})" if self.queue else "")
