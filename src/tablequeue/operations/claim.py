"""Claiming: ready messages come under a lease, and what is due or abandoned becomes ready again."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime
from time import monotonic
from typing import Any

from tablequeue.engines.base import Row
from tablequeue.operations.desk import Desk, Params, count, seconds

# A busy queue is swept once a second by each process, which is how late an expired lease is seen at the most; an
# empty one at every claim. Under a long-open snapshot a sweep on PostgreSQL walks dead entries: it may take at most
# a fiftieth of the time.
SWEEP_EVERY = 1.0
SWEEP_SHARE = 50
# Messages that one sweep makes ready: enough to keep up, few enough to hold no lock for long.
SWEEP_SIZE = 1000


def claim(desk: Desk, n: int, lease: float | None, now: datetime | None, connection: Any) -> tuple[str, Sequence[Row]]:
    """A new token, and the rows claimed under it: (id, payload, headers, attempts, pushed, popped, lease end)."""
    table, run = desk.table, desk.runner.run
    token = secrets.token_hex(16)
    params: Params = {
        "n": n if n == 1 else count(n, "n"),
        "token": token,
        "consumer": desk.who,
        "lease": table.definition.lease if lease is None else seconds(lease, "lease"),
        "now": None if now is None else desk.time(now),
    }
    started = monotonic()
    swept = now is not None or started >= table.next_sweep
    if swept:
        sweep(desk, now, connection)
    rows = run(desk.engine.claim, table, params, connection)
    if swept:
        finished = monotonic()
        table.next_sweep = finished + max(SWEEP_EVERY, SWEEP_SHARE * (finished - started))
    elif len(rows) < n and sweep(desk, now, connection):
        params["n"] = n - len(rows)
        rows = [*rows, *run(desk.engine.claim, table, params, connection)]
    return token, rows


def sweep(desk: Desk, now: datetime | None, connection: Any = None) -> int:
    """Due and abandoned messages become ready, or dead if their attempts are spent; how many."""
    params: Params = {
        "n": SWEEP_SIZE,
        "max_attempts": desk.table.definition.max_attempts,
        "now": desk.time(now),
    }
    return desk.runner.run(desk.engine.sweep, desk.table, params, connection)
