"""Claims: ready messages come under a lease, and messages that are due or abandoned become ready."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from datetime import datetime
from random import random
from time import monotonic, sleep
from typing import Any, Literal

from tablequeue.engines.texts import Row
from tablequeue.errors import BadInput, TablequeueError
from tablequeue.model.pacing import Duration
from tablequeue.observe.counters import counters
from tablequeue.verbs.context import Context, Params, count, seconds

Remove = Callable[[Any, Any, Params], Any]

# Seconds between the end of a sweep and the start of the next one, by the claims of one process on a busy queue. An
# empty queue is swept at every claim. This bounds how late a claim sees a message that became due, whose lease expired,
# or that was committed late, so it does not grow with the time of a sweep. docs/performance.md has figures.
SWEEP_EVERY = 0.75
# Messages that one sweep makes ready: enough to keep up, few enough to hold no lock for long.
SWEEP_SIZE = 1000
# Seconds between two looks of one process at a history with a retention; while there is much to delete, it looks at
# every sweep.
PURGE_EVERY = 60.0
# Claims of a call that found nothing while a group with limits had room, and the longest random pause before each, in
# seconds: about the time of a commit.
TRIES, TRY_AGAIN_AFTER = 5, 0.01

SameGroup = bool | Literal["open"]
"""Whether a claim is of one group, which is closed then: as a whole, or behind the messages in progress."""


def claim(
    context: Context,
    n: int,
    lease: Duration | None,
    now: datetime | None,
    connection: Any,
    same_group: SameGroup = False,
) -> tuple[str, Sequence[Row]]:
    """Claim messages; return a new token, and the rows claimed under it, as CLAIMED."""
    if same_group:
        check_same_group(context, connection)
    token, params = leased(context, n, lease, now, connection)
    return token, claimed(context, params, now, connection, same_group=same_group)


def claim_group(
    context: Context, group: str, n: int, lease: Duration | None, now: datetime | None
) -> tuple[str, Sequence[Row]]:
    """Claim messages of one group; return a new token, and the rows claimed under it, as CLAIMED."""
    table = context.table
    if not table.definition.fair:
        raise BadInput(
            f"The {table.definition.kind} {table.name!r} has no fair groups, of which one could be chosen.",
            "Use pop_many, or create a queue with groups='fair'.",
        )
    if table.definition.limited or table.definition.delivery == "at_most_once":
        raise BadInput(
            f"The queue {table.name!r} has limits, or delivers at most once: no group of it can be chosen.",
            "Use pop_many, or create a queue without them.",
        )
    token, params = leased(context, n, lease, now)
    params["group"] = group
    return token, _swept(context, context.messages.claim_group, params, now, None, refusable=True)


def claimed(
    context: Context,
    params: Params,
    now: datetime | None,
    connection: Any,
    refusable: bool = True,
    same_group: SameGroup = False,
) -> Sequence[Row]:
    """Claim with the parameters of `leased`. Unless `refusable`, no rows are returned for an error."""
    messages = context.messages
    remove = messages.take if context.table.definition.delivery == "at_most_once" else messages.claim
    if same_group:
        # An open run; see create_groups.sql.
        remove, params = messages.claim_run, params | {"run": -1 if same_group == "open" else 1}
    return _swept(context, remove, params, now, connection, refusable)


def check_same_group(context: Context, connection: Any) -> None:
    """Refuse to claim several messages of a group where a group has no order, or in a caller's transaction."""
    table = context.table
    if not table.definition.grouped:
        raise BadInput(
            f"The {table.definition.kind} {table.name!r} has no ordered groups, so same_group means nothing.",
            "Leave same_group out, or create a queue with groups=True or strict=True.",
        )
    if connection is not None:
        raise BadInput(
            "A claim with same_group cannot be a part of a transaction, which may not see all messages of the group.",
            "Pop without connection=, then complete in your transaction: complete_many(messages, connection=...).",
        )


def leased(
    context: Context, n: int, lease: Duration | None, now: datetime | None, connection: Any = None
) -> tuple[str, Params]:
    """Return a new token, and the parameters of a claim under it."""
    context.keep_current(connection)
    definition = context.table.definition
    if connection is not None and definition.kind == "subscription":
        raise BadInput(
            "A claim of a subscription cannot be a part of a transaction: it would hold up all other consumers.",
            "Pop without connection=, then complete in your transaction: complete(message, connection=...).",
        )
    token = secrets.token_hex(16)
    params = _params(context, n, token, now)
    if definition.delivery == "at_least_once":
        params["lease"] = definition.lease if lease is None else seconds(lease, "lease")
    elif lease is not None:
        raise BadInput("A message delivered at most once has no lease.", "Leave lease out.")
    return token, params


def take(context: Context, n: int, now: datetime | None, connection: Any) -> Sequence[Row]:
    """Remove messages in the caller's transaction; return their rows, as CLAIMED."""
    if connection is None:
        raise BadInput(
            "take() needs the connection whose transaction the message goes with.",
            "Give a connection, or use pop() and complete().",
        )
    context.keep_current(connection)
    params = _params(context, n, None, now)
    return _swept(context, context.messages.take, params, now, connection, refusable=True)


def check_prefetch(context: Context, prefetch: int) -> None:
    """Refuse to claim messages before their turn where delivery is at most once."""
    if prefetch != 1 and context.table.definition.delivery == "at_most_once":
        raise BadInput(
            "prefetch does not go with at_most_once: what is not handed over would be lost.", "Leave prefetch out."
        )


def sweep(context: Context, now: datetime | None, connection: Any = None) -> int:
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
    if context.table.definition.grouped and context.engine.promotes:
        moved += context.run_beside(context.messages.promote, _promoting(context, now), connection)
    return moved


def promote(context: Context, now: datetime | None, connection: Any = None) -> int:
    """Make the next message ready in each group that has no head; return in how many.

    Never in a caller's transaction, where it would keep other consumers waiting. The next claim that finds too little
    promotes what is pushed or finished there.
    """
    if not context.engine.promotes or connection is not None:
        return 0
    return context.run(context.messages.promote, _promoting(context, now))


def promote_after(context: Context, now: datetime | None, connection: Any = None, messages: int = 1) -> None:
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


def notify_ended(context: Context, connection: Any) -> None:
    """Notify those who wait for results after messages ended without one; not in a caller's transaction.

    An error is not raised, for the messages have ended: those who wait look by themselves too.
    """
    if context.table.definition.results and connection is None:
        try:
            context.run(context.messages.notify_results, {})
        except TablequeueError:
            return


def _params(context: Context, n: int, token: str | None, now: datetime | None) -> Params:
    return {
        "n": count(n, "n"),
        "token": token,
        "consumer": context.who,
        "now": None if now is None else context.time(now),
    }


def _promoting(context: Context, now: datetime | None) -> Params:
    return {"n": SWEEP_SIZE, "now": context.time(now)}


def _swept(
    context: Context, remove: Remove, params: Params, now: datetime | None, connection: Any, refusable: bool
) -> Sequence[Row]:
    """Claim; sweep before if a sweep is due, or after if too little was ready."""
    due = now is not None or monotonic() >= context.table.next_sweep
    refusal = keep_up(context, now, connection) if due else None
    try:
        rows = _removed(context, remove, params, connection)
    except TablequeueError:
        if refusable:
            raise
        return []
    if refusal is not None and refusable and not rows:
        raise refusal
    rows = rows if due else topped_up(context, remove, rows, params, now, connection, refusable)
    if not rows and context.table.definition.group_limited and connection is None:
        rows = _tried_again(context, remove, params, refusable)
    counters.add("popped_messages", context.table.name, len(rows))
    return rows


def _tried_again(context: Context, remove: Remove, params: Params, refusable: bool) -> Sequence[Row]:
    """Claim again while a group has room: other claims had locked its row for a moment."""
    try:
        for _ in range(TRIES):
            coming = context.run(context.reads.until_next, {"now": params["now"]})
            if coming.paused or coming.held or coming.seconds is None or coming.seconds > 0:
                break
            sleep(random() * TRY_AGAIN_AFTER)
            if rows := _removed(context, remove, params, None):
                return rows
    except TablequeueError:
        if refusable:
            raise
    return []


def _removed(context: Context, remove: Remove, params: Params, connection: Any) -> Sequence[Row]:
    if connection is not None and context.engine.looks_apart:
        looked = params | {"removes": remove == context.messages.take}
        params = params | {"seen": context.run_beside(context.messages.look, looked, connection)}
    return context.run(remove, params, connection)


def keep_up(context: Context, now: datetime | None, connection: Any = None) -> TablequeueError | None:
    """Do what a busy queue needs from time to time: sweep, and shorten the history. Return the error, if any."""
    table = context.table
    try:
        # First, so that the claims of other threads do not do it too.
        table.next_sweep = monotonic() + SWEEP_EVERY
        moved = sweep(context, now, connection)
        if table.definition.key_for and connection is None:
            moved += context.run(context.messages.forget_keys, {"n": SWEEP_SIZE, "now": context.time(now)})
        if table.definition.group_rate and connection is None:
            moved += context.run(context.messages.forget_rates, {"n": SWEEP_SIZE, "now": context.time(now)})
        if table.definition.concurrency is not None and connection is None:
            context.run(context.messages.close_slots, {})
        # Not beside a caller's transaction, which may have locked the database that it would wait for.
        retention = table.definition.retention
        if retention is not None and connection is None and monotonic() >= table.next_purge:
            _purge_history(context, retention, now)
    except TablequeueError as refusal:
        return refusal
    table.next_sweep = 0.0 if moved >= SWEEP_SIZE else monotonic() + SWEEP_EVERY
    return None


def topped_up(
    context: Context,
    remove: Remove,
    rows: Sequence[Row],
    params: Params,
    now: datetime | None,
    connection: Any,
    refusable: bool = True,
) -> Sequence[Row]:
    """Return the rows, with more after a sweep if they are too few. No error loses rows that are claimed."""
    missing = params["n"] - len(rows)
    whole = context.table.definition.claims_ranges or remove == context.messages.claim_run
    if not missing or (rows and whole):
        return rows
    try:
        if not sweep(context, now, connection):
            return rows
        more = _removed(context, remove, params | {"n": missing}, connection)
    except TablequeueError:
        # A transaction of the caller's may be unusable, and the rows with it.
        if connection is None and (rows or not refusable):
            return rows
        raise
    rank: Any = context.table.rank  # or None: as tuples, by id
    return sorted([*rows, *more], key=rank)


def _purge_history(context: Context, retention: float, now: datetime | None) -> None:
    params: Params = {"age": retention, "n": SWEEP_SIZE, "now": context.time(now)}
    deleted = context.run(context.messages.purge_history, params)
    context.table.next_purge = monotonic() + (0 if deleted == SWEEP_SIZE else PURGE_EVERY)
