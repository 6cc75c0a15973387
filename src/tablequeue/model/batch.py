"""What a batch is: messages with callbacks. No database here."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from tablequeue.errors import BadInput

OnDead = Literal["wait", "continue", "cancel"]
"""What a batch, or a message that waits for others, does about a dead letter: it waits for it, goes on without it, or
cancels the other messages, or itself."""
ON_DEAD: tuple[OnDead, ...] = get_args(OnDead)
BATCH = "tablequeue-batch"
"""The header of a callback."""
BATCHES_WITHOUT_HISTORY = 86_400.0
"""Seconds for which an ended batch is kept, in a queue without a history."""


def check_on_dead(on_dead: str) -> None:
    if on_dead not in ON_DEAD:
        raise BadInput(f"on_dead is {on_dead!r}.", f"Give one of: {', '.join(ON_DEAD)}.")


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """The progress of a batch: each of its messages is counted in one of the five numbers.

    waiting       they are ready, scheduled or blocked.
    in_progress   consumers have them.
    finished      they were completed.
    dead          they are dead letters.
    cancelled     they left the queue without being completed: cancelled, expired or deleted.
    opened_at     when the batch was opened.
    failed_at     when the callback `failed` was pushed; None: not yet, or there is none.
    ended_at      when the batch ended, and its callback `then` was pushed; None: it has not. After that none of these
                  values changes.
    """

    waiting: int
    in_progress: int
    finished: int
    dead: int
    cancelled: int
    opened_at: datetime
    failed_at: datetime | None
    ended_at: datetime | None

    @property
    def total(self) -> int:
        """The number of all messages of the batch."""
        return self.waiting + self.in_progress + self.finished + self.dead + self.cancelled
