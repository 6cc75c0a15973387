"""Claiming: ready messages come under a lease, and what is due or abandoned becomes ready again."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime
from time import monotonic
from typing import Any

from tablequeue.engines.texts import Row
from tablequeue.errors import BadInput, TablequeueError
from tablequeue.operations.desk import Desk, Params, count, seconds

# A busy queue is swept once a second by each process, which is how late an expired lease is seen at the most; an
# empty one at every claim. Under a long-open snapshot a sweep on PostgreSQL walks dead entries: it may take at most
# a fiftieth of the time.
SWEEP_EVERY = 1.0
SWEEP_SHARE = 50
# Messages that one sweep makes ready: enough to keep up, few enough to hold no lock for long.
SWEEP_SIZE = 1000
# A history with a retention is looked at once a minute by each process; while there is much to delete, at every sweep.
PURGE_EVERY = 60.0


def claim(desk: Desk, n: int, lease: float | None, now: datetime | None, connection: Any) -> tuple[str, Sequence[Row]]:
    """A new token, and the rows claimed under it, as CLAIMED."""
    return claimed(desk, leased(desk, n, lease, now), now, connection)


def claimed(desk: Desk, params: Params, now: datetime | None, connection: Any) -> tuple[str, Sequence[Row]]:
    """The token of what `leased` has made, and the rows claimed under it."""
    once = desk.table.definition.delivery == "at_most_once"
    return params["token"], _swept(desk, desk.engine.take if once else desk.engine.claim, params, now, connection)


def leased(desk: Desk, n: int, lease: float | None, now: datetime | None) -> Params:
    """What a claim asks for, under a new token."""
    definition = desk.table.definition
    params = _params(desk, n, secrets.token_hex(16), now)
    if definition.delivery == "at_least_once":
        params["lease"] = definition.lease if lease is None else seconds(lease, "lease")
    elif lease is not None:
        raise BadInput("A message delivered at most once has no lease.", "Leave lease out.")
    return params


def take(desk: Desk, n: int, now: datetime | None, connection: Any) -> Sequence[Row]:
    """Rows removed in the caller's transaction, as CLAIMED."""
    if connection is None:
        raise BadInput(
            "take() needs the connection whose transaction the message goes with.",
            "Give a connection, or use pop() and complete().",
        )
    return _swept(desk, desk.engine.take, _params(desk, n, None, now), now, connection)


def sweep(desk: Desk, now: datetime | None, connection: Any = None) -> int:
    """Due and abandoned messages become ready, or dead if their attempts are spent; how many."""
    params: Params = {
        "n": SWEEP_SIZE,
        "max_attempts": desk.table.definition.max_attempts,
        "now": desk.time(now),
    }
    moved = desk.runner.run(desk.engine.sweep, desk.table, params, connection)
    if desk.table.definition.grouped:
        moved += arrange(desk, now)
    return moved


def arrange(desk: Desk, now: datetime | None, connection: Any = None) -> int:
    """In groups whose turn came free, the next message becomes ready; in how many.

    Never inside a caller's transaction, where it would keep the others waiting: what is pushed or finished there is
    arranged by the next claim that finds too little.
    """
    if not desk.engine.arranges or connection is not None:
        return 0
    return desk.runner.run(desk.engine.arrange, desk.table, {"n": SWEEP_SIZE, "now": desk.time(now)})


def arrange_after(desk: Desk, now: datetime | None, connection: Any = None, messages: int = 1) -> None:
    """Arrange what a call about so many messages has left that took effect.

    All of it: with 10,000 groups and 1,000 notes a push, a million notes were left to the consumers, whose rate fell to
    a quarter. If it is refused, that is no failure of the call, which the caller would repeat: the next claim that
    finds too little arranges it.
    """
    if desk.table.definition.grouped:
        try:
            for _ in range(0, messages, SWEEP_SIZE):
                arrange(desk, now, connection)
        except TablequeueError:
            return


def _params(desk: Desk, n: int, token: str | None, now: datetime | None) -> Params:
    return {
        "n": count(n, "n"),
        "token": token,
        "consumer": desk.who,
        "now": None if now is None else desk.time(now),
    }


def _swept(desk: Desk, remove: Any, params: Params, now: datetime | None, connection: Any) -> Sequence[Row]:
    """Claim; sweep before when it is time for it, or after when too little was ready."""
    table, run = desk.table, desk.runner.run
    started = monotonic()
    apart = connection is not None and desk.engine.looks_apart
    due = now is not None or started >= table.next_sweep or apart
    if due:
        sweep(desk, now, None if apart else connection)
        # Before the claim: if it fails, nothing has been claimed. Not beside a caller's transaction, which may have
        # locked the database that it would wait for.
        if table.definition.retention is not None and connection is None and started >= table.next_purge:
            _purge_history(desk, now)
    if apart:
        params["seen"] = run(desk.engine.look, table, params)
    rows = run(remove, table, params, connection)
    if due:
        finished = monotonic()
        table.next_sweep = finished + max(SWEEP_EVERY, SWEEP_SHARE * (finished - started))
        return rows
    return topped_up(desk, remove, rows, params, now, connection)


def topped_up(
    desk: Desk, remove: Any, rows: Sequence[Row], params: Params, now: datetime | None, connection: Any
) -> Sequence[Row]:
    """With what a sweep brings, if too little was ready."""
    missing = params["n"] - len(rows)
    if not missing or not sweep(desk, now, connection):
        return rows
    more = desk.runner.run(remove, desk.table, params | {"n": missing}, connection)
    return sorted([*rows, *more], key=desk.table.rank)


def _purge_history(desk: Desk, now: datetime | None) -> None:
    params = {"age": desk.table.definition.retention, "n": SWEEP_SIZE, "now": desk.time(now)}
    deleted = desk.runner.run(desk.engine.purge_history, desk.table, params)
    desk.table.next_purge = monotonic() + (0 if deleted == SWEEP_SIZE else PURGE_EVERY)
