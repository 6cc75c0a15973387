"""The operations that pause the claims of a queue. Every claim reads the row that `pause` writes."""

from __future__ import annotations

from tablequeue.engines.operation import Effect, by_text, first, none
from tablequeue.engines.parts import Part


class Pauses(Part):
    pause = by_text(Effect.UPKEEP, none)
    """Hand out no message until the time `until`."""
    resume = by_text(Effect.UPKEEP, none)
    """End the pause, if there is one."""
    paused = by_text(Effect.READ, first)
    """Return the time until which claims are paused; None if they are not."""
