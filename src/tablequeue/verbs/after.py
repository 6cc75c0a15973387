"""What follows a call that took effect: promote messages of groups, end batches, and notify waiters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from tablequeue.engines.plan import Ways
from tablequeue.errors import TablequeueError
from tablequeue.model.connection import Connection
from tablequeue.verbs import batch_ends
from tablequeue.verbs.context import Context
from tablequeue.verbs.results import notify_waiters
from tablequeue.verbs.sweep import SWEEP_SIZE, promote

Step = Callable[[Context, datetime | None, int], object]


def follow(
    context: Context, steps: Ways[Step], now: datetime | None, connection: Connection | None, messages: int = 1
) -> None:
    """Do what follows a call about this number of messages. Not in a caller's transaction, which others do not see yet.

    An error is not raised, because the caller would repeat the call, which took effect. The next sweep does the rest.
    """
    if connection is None and messages:
        for step in context.table.plan.steps(steps):
            try:
                step(context, now, messages)
            except TablequeueError:
                continue


def _promote(context: Context, now: datetime | None, messages: int) -> None:
    """Promote the next messages of the groups.

    It does so in all groups: with 10,000 groups and 1,000 notes a push, a million notes were left to the consumers, and
    their rate fell to a quarter.
    """
    for _ in range(0, messages, SWEEP_SIZE):
        promote(context, now)


def _end_batches(context: Context, now: datetime | None, messages: int) -> None:
    batch_ends.look_after(context, now)
    batch_ends.look(context, now)


CHANGED: Ways[Step] = Ways({"promoted": _promote})
"""What follows a push, and other calls after which a group may lack a head."""
COMPLETED: Ways[Step] = Ways(
    {"promoted": _promote, "batches": lambda context, now, messages: batch_ends.look_after(context, now)}
)
"""What follows a completion, which notes the batches that it may have ended."""
LEFT: Ways[Step] = Ways({"promoted": _promote, "batches": _end_batches})
"""What follows if messages left the queue without being completed, or became dead letters."""
PURGED: Ways[Step] = Ways({"batches": _end_batches})
"""What follows a purge, after which sweeps promote."""
ENDED: Ways[Step] = Ways(
    {
        "promoted": _promote,
        "results": lambda context, now, messages: notify_waiters(context),
        "batches": _end_batches,
    }
)
"""What follows a cancellation, and the completion of a batch of a stream, which has no results."""
