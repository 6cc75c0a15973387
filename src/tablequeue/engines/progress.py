"""The operations on progress: what consumers report of the messages that they hold, a row for each claim."""

from __future__ import annotations

from tablequeue.engines.operation import Effect, by_text, changed, each, rowcount
from tablequeue.engines.parts import Part
from tablequeue.engines.rows import ProgressRow


class ProgressReports(Part):
    report_progress = by_text(Effect.UPKEEP, changed)
    """Keep the report on the message `id`. Return whether it is in progress under `token`; else nothing is kept."""
    reported_progress = by_text(Effect.READ, each(ProgressRow))
    """Return the last reports of those who hold the messages `ids`."""
    forget_progress = by_text(Effect.UPKEEP, rowcount)
    """Delete up to `n` reports of claims that are not held any more. Return how many."""
