"""Sweeps: what claims do for a queue from time to time. Messages that are due or abandoned become ready."""

from __future__ import annotations

from datetime import datetime
from time import monotonic

from tablequeue.errors import TablequeueError
from tablequeue.model.connection import Connection
from tablequeue.verbs import batch_ends
from tablequeue.verbs.context import Context, Params

# Seconds between the end of a sweep and the start of the next one, by the claims of one process on a busy queue. An
# empty queue is swept at every claim. This bounds how late a claim sees a message that became due, whose lease expired,
# or that was committed late, so it does not grow with the time of a sweep. docs/performance.md has figures.
SWEEP_EVERY = 0.75
# Messages that one sweep makes ready: enough to keep up, few enough to hold no lock for long.
SWEEP_SIZE = 1000
# Seconds between two looks of one process at a history with a retention; while there is much to delete, it looks at
# every sweep.
PURGE_EVERY = 60.0
# Seconds for which an ended batch is there, in a queue without a history.
BATCHES_WITHOUT_HISTORY = 86_400.0


def keep_up(context: Context, now: datetime | None, connection: Connection | None = None) -> TablequeueError | None:
    """Do what a busy queue needs from time to time: sweep, and shorten the history. Return the error, if any."""
    table = context.table
    try:
        # First, so that the claims of other threads do not do it too.
        table.next_sweep = monotonic() + SWEEP_EVERY
        moved = sweep(context, now, connection)
        if table.definition.unique_for and connection is None:
            moved += context.run(context.messages.forget_keys, {"n": SWEEP_SIZE, "now": context.time(now)})
        if table.definition.group_rate and connection is None:
            moved += context.run(context.messages.forget_rates, {"n": SWEEP_SIZE, "now": context.time(now)})
        if table.definition.concurrency is not None and connection is None:
            context.run(context.messages.close_slots, {})
        # Not beside a caller's transaction, which may have locked the database that it would wait for.
        if connection is None and monotonic() >= table.next_purge:
            _purge(context, now)
    except TablequeueError as refusal:
        return refusal
    table.next_sweep = 0.0 if moved >= SWEEP_SIZE else monotonic() + SWEEP_EVERY
    return None


def sweep(context: Context, now: datetime | None, connection: Connection | None = None) -> int:
    """Make due and abandoned messages ready, or dead if they have no attempts left, and expire others; return how many.

    In a transaction beside that of a caller's `connection`: inside, no other consumer could have the messages until it
    ends. Only where one writer holds the whole database is it a part of that transaction.
    """
    params: Params = {
        "n": SWEEP_SIZE,
        "max_attempts": context.table.definition.max_attempts,
        "now": context.time(now),
    }
    run = context.run if context.engine.sweeps_within else context.run_beside
    moved = run(context.messages.sweep, params, connection)
    if context.table.definition.expires:
        expired = run(context.messages.expire, {"n": SWEEP_SIZE, "now": params["now"]}, connection)
        moved += expired
        if expired:
            notify_ended(context, connection)
            if context.table.definition.grouped and not context.engine.promotes:
                # A trigger has made the next messages the heads of their groups: scheduled if they have a due time.
                moved += run(context.messages.sweep, params, connection)
    if context.table.definition.grouped and context.engine.promotes:
        moved += context.run_beside(context.messages.promote, _promoting(context, now), connection)
    if context.table.definition.batches and connection is None:
        moved += batch_ends.look(context, now)
    return moved


def promote(context: Context, now: datetime | None, connection: Connection | None = None) -> int:
    """Make the next message ready in each group that has no head; return in how many.

    Never in a caller's transaction, where it would keep other consumers waiting. The next claim that finds too little
    promotes what is pushed or finished there.
    """
    if not context.engine.promotes or connection is not None:
        return 0
    return context.run(context.messages.promote, _promoting(context, now))


def promote_after(
    context: Context, now: datetime | None, connection: Connection | None = None, messages: int = 1
) -> None:
    """Promote the next messages of the groups after a call about so many messages that took effect.

    In all of the groups: with 10,000 groups and 1,000 notes a push, a million notes were left to the consumers, and
    their rate fell to a quarter. An error is not raised, for the caller would repeat the call, which took effect: the
    next claim that finds too little promotes.
    """
    if context.table.definition.grouped:
        try:
            for _ in range(0, messages, SWEEP_SIZE):
                promote(context, now, connection)
        except TablequeueError:
            return


def end_leases(context: Context, now: datetime | None, connection: Connection | None) -> None:
    """Sweep after a call that made leases end now, so that the next claim of any consumer finds the messages.

    Not in a caller's transaction, which others do not see yet. An error is not raised, for the leases have ended: the
    sweeps of those who claim find them.
    """
    if connection is None and keep_up(context, now) is None:
        try:
            context.run(context.messages.notify, {})
        except TablequeueError:
            return


def look_at_batches(context: Context, now: datetime | None, connection: Connection | None, lost: int = 0) -> None:
    """End the batches that a call may have ended; not in a caller's transaction, which others do not see yet.

    lost   how many messages became dead letters, or left the queue in other ways than by a completion.
    """
    if context.table.definition.batches and connection is None:
        batch_ends.look_after(context, now)
        if lost:
            try:
                batch_ends.look(context, now)
            except TablequeueError:  # the call took effect, and the next sweep looks
                return


def notify_ended(context: Context, connection: Connection | None) -> None:
    """Notify those who wait for results after messages ended without one; not in a caller's transaction.

    An error is not raised, for the messages have ended: those who wait look by themselves too.
    """
    if context.table.definition.results and connection is None:
        try:
            context.run(context.messages.notify_results, {})
        except TablequeueError:
            return


def _promoting(context: Context, now: datetime | None) -> Params:
    return {"n": SWEEP_SIZE, "now": context.time(now)}


def _purge(context: Context, now: datetime | None) -> None:
    """Delete a bounded part of what a retention has ended in the history, and of the batches that ended as long ago."""
    definition, purged = context.table.definition, 0
    age = definition.retention if definition.keeps_history else BATCHES_WITHOUT_HISTORY
    if age is not None:
        params: Params = {"age": age, "n": SWEEP_SIZE, "now": context.time(now)}
        if definition.keeps_history:
            purged = context.run(context.messages.purge_history, params)
        if definition.batches:
            purged = max(purged, context.run(context.engine.batches.forget_batches, params))
    context.table.next_purge = monotonic() + (0 if purged == SWEEP_SIZE else PURGE_EVERY)
