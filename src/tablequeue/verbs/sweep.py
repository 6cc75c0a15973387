"""Sweeps: maintenance that claims do from time to time. Messages that are due or abandoned become ready."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from time import monotonic

from tablequeue.engines.connection import Cursor
from tablequeue.engines.plan import Ways
from tablequeue.engines.table import Table
from tablequeue.errors import TablequeueError
from tablequeue.model.batch import BATCHES_WITHOUT_HISTORY
from tablequeue.model.connection import Connection
from tablequeue.verbs import batch_ends, dependency_ends
from tablequeue.verbs.context import Context, Params
from tablequeue.verbs.results import notify_waiters

Operation = Callable[[Cursor, Table, Params], int]

# Seconds between the end of a sweep and the start of the next one, by the claims of one process on a busy queue. An
# empty queue is swept at every claim. This bounds how late a claim sees a message that became due, whose lease expired,
# or that was committed late, so it does not grow with the time of a sweep. docs/performance.md has figures.
SWEEP_EVERY = 0.75
# Messages that one sweep makes ready: enough to keep up, few enough to hold no lock for long.
SWEEP_SIZE = 1000
# Seconds between two looks of one process at a history with a retention. While there is more to delete than a look
# deletes, it looks at every sweep, each time twice as often in a row, up to this many times: some 40,000 messages a
# second, which is more than a process finishes. Each look is a transaction of its own, of SWEEP_SIZE messages.
PURGE_EVERY = 60.0
MOST_PURGES = 32


def keep_up(context: Context, now: datetime | None, connection: Connection | None = None) -> TablequeueError | None:
    """Maintain a busy queue from time to time: sweep it, and shorten its history. Return the error, if any."""
    table = context.table
    try:
        # First, so that the claims of other threads do not do it too.
        table.next_sweep = monotonic() + SWEEP_EVERY
        moved = sweep(context, now, connection)
        # Not beside a caller's transaction, which may have locked the database, so that the sweep would wait for it.
        if connection is None:
            moved += sum(step(context, now) for step in table.plan.steps(UPKEEP))
            if monotonic() >= table.next_purge:
                purge(context, now)
    except TablequeueError as refusal:
        return refusal
    table.next_sweep = 0.0 if moved >= SWEEP_SIZE else monotonic() + SWEEP_EVERY
    return None


def purge(context: Context, now: datetime | None) -> None:
    """Delete messages older than the retention: a bounded number, which doubles with each call that leaves some."""
    table = context.table
    behind = False
    for step in table.plan.steps(PURGES):
        looks = (step(context, now) for _ in range(table.purges))
        behind |= all(deleted >= SWEEP_SIZE for deleted in looks)
    table.purges = min(2 * table.purges, MOST_PURGES) if behind else 1
    table.next_purge = monotonic() + (0 if behind else PURGE_EVERY)


def sweep(context: Context, now: datetime | None, connection: Connection | None = None) -> int:
    """Make due and abandoned messages ready, or dead if they have no attempts left, and expire others; return how many.

    It runs in a transaction beside the transaction of the caller's `connection`: inside it, no other consumer could get
    the messages until it ends. Only if the database has a single writer, the sweep runs inside it.
    """
    return sum(step(context, now, connection) for step in context.table.plan.steps(SWEEPS))


def promote(context: Context, now: datetime | None, connection: Connection | None = None) -> int:
    """Make the next message ready in each group that has no head; return the number of groups.

    Never in a caller's transaction, where it would keep other consumers waiting. The next claim that finds too few
    messages promotes the messages behind that transaction's changes.
    """
    return context.run_beside(context.messages.promote, _bounded(context, now), connection)


def end_leases(context: Context, now: datetime | None, connection: Connection | None) -> None:
    """Sweep after a call that made leases end now, so that the next claim of any consumer finds the messages.

    Not in a caller's transaction, which others do not see yet. An error is not raised, for the leases have ended: the
    sweeps of later claims find them.
    """
    if connection is None and keep_up(context, now) is None:
        try:
            context.run(context.messages.notify, {})
        except TablequeueError:
            return


# -- private -----------------------------------------------------------------------------------------------------------


def _swept(context: Context, now: datetime | None, connection: Connection | None) -> int:
    more: Params = {"max_attempts": context.table.definition.max_attempts}
    return context.run_apart(context.messages.sweep, _bounded(context, now) | more, connection)


def _pumped(context: Context, now: datetime | None, connection: Connection | None) -> int:
    return context.run_apart(context.engine.ranges.pump, _bounded(context, now), connection)


def _expired(context: Context, now: datetime | None, connection: Connection | None) -> int:
    return context.run_apart(context.messages.expire, _bounded(context, now), connection)


def _expired_and_told(context: Context, now: datetime | None, connection: Connection | None) -> int:
    expired = _expired(context, now, connection)
    if expired and connection is None:
        notify_waiters(context)
    return expired


def _ended_batches(context: Context, now: datetime | None, connection: Connection | None) -> int:
    return 0 if connection is not None else batch_ends.look(context, now)


def _close_slots(context: Context, now: datetime | None) -> int:
    context.run(context.messages.close_slots, {})
    return 0


def _purge_history(context: Context, now: datetime | None) -> int:
    age = context.table.definition.retention
    assert age is not None, "of a history with a retention"
    return context.run(context.messages.purge_history, _bounded(context, now) | {"age": age})


def _forget_batches(context: Context, now: datetime | None) -> int:
    retention = context.table.definition.retention
    age = BATCHES_WITHOUT_HISTORY if retention is None else retention
    return context.run(context.engine.batches.forget_batches, _bounded(context, now) | {"age": age})


def _bounded(context: Context, now: datetime | None) -> Params:
    return {"n": SWEEP_SIZE, "now": context.time(now)}


Sweep = Callable[[Context, datetime | None, Connection | None], int]
Upkeep = Callable[[Context, datetime | None], int]

SWEEPS: Ways[Sweep] = Ways(
    {
        "subscription not ranges": _pumped,
        "dependencies": dependency_ends.look,
        "dependencies grouped": dependency_ends.give_way,
        "": _swept,
        "expires not results": _expired,
        "expires results": _expired_and_told,
        "promoted": promote,
        "batches": _ended_batches,
    }
)
"""The steps of a sweep. Each returns how many messages it has moved."""
UPKEEP: Ways[Upkeep] = Ways(
    {
        "unique_for": lambda context, now: context.run(context.messages.forget_keys, _bounded(context, now)),
        "rate": lambda context, now: context.run(context.messages.forget_rate, {"now": context.time(now)}),
        "group_rate": lambda context, now: context.run(context.messages.forget_rates, _bounded(context, now)),
        "concurrency": _close_slots,
    }
)
"""The steps after a sweep that is not beside a caller's transaction. Each returns how many rows it changes."""
PURGES: Ways[Upkeep] = Ways({"retention": _purge_history, "batches retention or batches none": _forget_batches})
"""The operations that delete, a bounded number at a time, history past its retention, and batches that ended as long
ago."""
