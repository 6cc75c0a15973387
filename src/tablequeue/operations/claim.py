"""Claiming: ready messages come under a lease, and what is due or abandoned becomes ready again."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from datetime import datetime
from time import monotonic
from typing import Any

from tablequeue.definition import Duration
from tablequeue.engines.texts import Row
from tablequeue.errors import BadInput, TablequeueError
from tablequeue.operations.context import Context, Params, count, seconds

Remove = Callable[[Any, Any, Params], Any]

# Seconds between the end of a sweep and the begin of the next one, by the claims of one process on a busy queue. An
# empty queue is swept at every claim. It bounds how late a message is seen that became due, whose lease has expired, or
# that was committed late, so it does not grow with what a sweep takes. docs/performance.md has how late that is.
SWEEP_EVERY = 0.75
# Messages that one sweep makes ready: enough to keep up, few enough to hold no lock for long.
SWEEP_SIZE = 1000
# A history with a retention is looked at once a minute by each process; while there is much to delete, at every sweep.
PURGE_EVERY = 60.0


def claim(
    context: Context, n: int, lease: Duration | None, now: datetime | None, connection: Any
) -> tuple[str, Sequence[Row]]:
    """A new token, and the rows claimed under it, as CLAIMED."""
    token, params = leased(context, n, lease, now)
    return token, claimed(context, params, now, connection)


def claimed(
    context: Context, params: Params, now: datetime | None, connection: Any, refusable: bool = True
) -> Sequence[Row]:
    """The rows claimed as `leased` has it. Unless `refusable`, a refusal claims none."""
    return _swept(context, removal(context), params, now, connection, refusable)


def removal(context: Context) -> Remove:
    """The operation of the engine that gives messages to a consumer."""
    messages = context.engine.messages
    return messages.take if context.table.definition.delivery == "at_most_once" else messages.claim


def leased(context: Context, n: int, lease: Duration | None, now: datetime | None) -> tuple[str, Params]:
    """A new token, and what a claim under it asks for."""
    definition = context.table.definition
    token = secrets.token_hex(16)
    params = _params(context, n, token, now)
    if definition.delivery == "at_least_once":
        params["lease"] = definition.lease if lease is None else seconds(lease, "lease")
    elif lease is not None:
        raise BadInput("A message delivered at most once has no lease.", "Leave lease out.")
    return token, params


def take(context: Context, n: int, now: datetime | None, connection: Any) -> Sequence[Row]:
    """Rows removed in the caller's transaction, as CLAIMED."""
    if connection is None:
        raise BadInput(
            "take() needs the connection whose transaction the message goes with.",
            "Give a connection, or use pop() and complete().",
        )
    params = _params(context, n, None, now)
    return _swept(context, context.engine.messages.take, params, now, connection, refusable=True)


def check_prefetch(context: Context, prefetch: int) -> None:
    """Refuse to claim messages before their turn where delivery is at most once."""
    if prefetch != 1 and context.table.definition.delivery == "at_most_once":
        raise BadInput(
            "prefetch does not go with at_most_once: what is not handed over would be lost.", "Leave prefetch out."
        )


def sweep(context: Context, now: datetime | None, connection: Any = None) -> int:
    """Due and abandoned messages become ready, or dead if their attempts are spent; how many.

    Beside the transaction of a caller's `connection`, not in it: until that ends, nobody else could have the messages.
    Only where one writer holds the whole database is it a part of that transaction.
    """
    params: Params = {
        "n": SWEEP_SIZE,
        "max_attempts": context.table.definition.max_attempts,
        "now": context.time(now),
    }
    run = context.run if context.engine.sweeps_within else context.run_beside
    moved = run(context.engine.messages.sweep, params, connection)
    if context.table.definition.grouped and context.engine.promotes:
        moved += context.run_beside(context.engine.messages.promote, _promoting(context, now), connection)
    return moved


def promote(context: Context, now: datetime | None, connection: Any = None) -> int:
    """In groups whose turn came free, the next message becomes ready; in how many.

    Never inside a caller's transaction, where it would keep the others waiting: what is pushed or finished there is
    promoted by the next claim that finds too little.
    """
    if not context.engine.promotes or connection is not None:
        return 0
    return context.run(context.engine.messages.promote, _promoting(context, now))


def promote_after(context: Context, now: datetime | None, connection: Any = None, messages: int = 1) -> None:
    """Promote the next messages of the groups after a call about so many messages that took effect.

    All of it: with 10,000 groups and 1,000 notes a push, a million notes were left to the consumers, whose rate fell to
    a quarter. If it is refused, that is no failure of the call, which the caller would repeat: the next claim that
    finds too little promotes it.
    """
    if context.table.definition.grouped:
        try:
            for _ in range(0, messages, SWEEP_SIZE):
                promote(context, now, connection)
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
    """Claim; sweep before when it is time for it, or after when too little was ready."""
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
    return rows if due else topped_up(context, remove, rows, params, now, connection, refusable)


def _removed(context: Context, remove: Remove, params: Params, connection: Any) -> Sequence[Row]:
    if connection is not None and context.engine.looks_apart:
        params = params | {"seen": context.run_beside(context.engine.messages.look, params, connection)}
    return context.run(remove, params, connection)


def keep_up(context: Context, now: datetime | None, connection: Any = None) -> TablequeueError | None:
    """What a busy queue needs from time to time: a sweep, and a shorter history. The refusal, if it was refused."""
    table = context.table
    try:
        # First of all: the claims of other threads need not do it too.
        table.next_sweep = monotonic() + SWEEP_EVERY
        moved = sweep(context, now, connection)
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
    """With what a sweep brings, if too little was ready. With rows in hand nothing is refused any more."""
    missing = params["n"] - len(rows)
    if not missing:
        return rows
    try:
        if not sweep(context, now, connection):
            return rows
        more = _removed(context, remove, params | {"n": missing}, connection)
    except TablequeueError:
        # A transaction of the caller's may be beyond use, and the rows with it.
        if connection is None and (rows or not refusable):
            return rows
        raise
    rank: Any = context.table.rank  # or None: as tuples, by id
    return sorted([*rows, *more], key=rank)


def _purge_history(context: Context, retention: float, now: datetime | None) -> None:
    params: Params = {"age": retention, "n": SWEEP_SIZE, "now": context.time(now)}
    deleted = context.run(context.engine.messages.purge_history, params)
    context.table.next_purge = monotonic() + (0 if deleted == SWEEP_SIZE else PURGE_EVERY)
