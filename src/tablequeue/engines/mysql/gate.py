"""A limit on how many threads of one process run the same operation on a queue at the same time."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, wraps
from threading import Semaphore
from typing import TypeVar

from tablequeue.engines.connection import Cursor
from tablequeue.engines.params import Params
from tablequeue.engines.parts import Part
from tablequeue.engines.table import Table

# Seconds after which a call goes on without a permit: those that have them may be cut off from the server.
PATIENCE = 5.0

P = TypeVar("P", bound=Part)
T = TypeVar("T")


def at_once(most: int) -> Callable[[Callable[[P, Cursor, Table, Params], T]], Callable[[P, Cursor, Table, Params], T]]:
    """Let at most `most` calls of an operation run at once on a queue; the others wait in the process, for a while.

    Calls in a caller's transaction are not limited. What one `at_once` decorates has one limit in common.

    In InnoDB, each locked row that SKIP LOCKED skips costs some twenty page reads. Meanwhile the claim holds its own
    row locks, which other claims must skip in turn. With 200 consuming threads in four processes, each claim met 54
    locked rows and cost the server 7.2 ms. With a gate of 4 in each process it met 1.6 rows and cost 1.6 ms, and three
    times as many messages were claimed.
    """

    limit = object()

    def gated(operation: Callable[[P, Cursor, Table, Params], T]) -> Callable[[P, Cursor, Table, Params], T]:
        @wraps(operation)
        def run(part: P, cursor: Cursor, table: Table, params: Params) -> T:
            if not cursor.ours:
                return operation(part, cursor, table, params)
            server = (cursor.connection.host_info, cursor.connection.db)
            gate = _gate(limit, *server, table.engine.schema, table.table_name, most)
            permitted = gate.acquire(timeout=PATIENCE)
            try:
                return operation(part, cursor, table, params)
            finally:
                if permitted:
                    gate.release()

        return run

    return gated


@cache
def _gate(*place_and_size: object) -> Semaphore:
    *_, most = place_and_size
    assert isinstance(most, int)
    return Semaphore(most)


# In a forked child, the permits that other threads of the parent held would never be returned.
os.register_at_fork(after_in_child=_gate.cache_clear)
