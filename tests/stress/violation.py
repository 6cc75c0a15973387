"""The findings of the checks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    """A broken promise: its kind, the queue, the messages and the approximate time."""

    kind: str
    text: str
    queue: str = ""
    uids: tuple[str, ...] = ()
    at: float = 0

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" + (f" (queue {self.queue})" if self.queue else "")
