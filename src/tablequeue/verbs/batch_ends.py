"""The ends of batches: finds batches without messages left, and pushes their callbacks.

A batch is a row. Which of its messages are left, only their own rows say; so a completion changes no row of the batch.
A process that completes a message when no other one of the batch is ready looks, after the commit, whether any is left;
and each sweep looks at the open batches of its queue. A process that finds a batch without messages locks its row,
looks again, pushes the callback and ends the batch, in one transaction. So a crash leaves the batch ended with its
callback, or open.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

from tablequeue.engines.connection import Cursor
from tablequeue.engines.params import Params
from tablequeue.engines.rows import BatchRow, OpenBatchRow
from tablequeue.engines.table import Table
from tablequeue.errors import TablequeueError
from tablequeue.model.batch import BATCH, BatchProgress
from tablequeue.model.payload import dump_headers
from tablequeue.verbs import catalogue
from tablequeue.verbs.context import Context

# The number of open batches that a sweep checks; the next sweep checks the batches after them.
BATCHES = 100
# Messages of a batch that one statement cancels.
CANCELLED_AT_ONCE = 1000


def look(context: Context, now: datetime | None) -> int:
    """Look at some open batches of the queue, and end the finished ones. Return how many have pushed a callback."""
    table = context.table
    params: Params = {"after": table.next_batch, "n": BATCHES}
    found = context.run(context.engine.batches.open_batches, params)
    table.next_batch = found[-1].id if len(found) == BATCHES else 0
    acted = 0
    for batch in found:
        # An error of one batch, such as a callback into a queue to which this process may not push, stops neither other
        # batches nor consumers: the batch stays open, and a process that may push ends it.
        with suppress(TablequeueError):
            acted += _act(context, batch, now)
    return acted


def look_after(context: Context, now: datetime | None) -> None:
    """Look at the batches that completions of this process may have ended.

    An error is not raised, for the caller would repeat the completion, which took effect: a sweep ends the batch.
    """
    ending = context.table.ending
    try:
        while ending:
            params: Params = {"after": ending.pop() - 1, "n": 1}
            for batch in context.run(context.engine.batches.open_batches, params):
                _act(context, batch, now)
    except (TablequeueError, KeyError):  # another thread has taken the last one
        return


def cancel(context: Context, id: int, dead: bool, now: datetime | None) -> int:
    """Cancel the messages of a batch, with `dead` its dead letters too. Return how many were cancelled or told to
    stop."""
    total = 0
    params: Params = {"id": id, "dead": int(dead), "n": CANCELLED_AT_ONCE}
    while ids := context.run(context.engine.batches.uncancelled, params):
        cancelling: Params = {"ids": context.engine.dump_ids(ids), "now": context.time(now)}
        total += len(context.run(context.messages.cancel, cancelling))
    return total


def settle(context: Context, id: int, now: datetime | None) -> Callable[[Cursor, Table, Params], bool]:
    """Return the operation that pushes the due callbacks of a batch, and ends the batch if no message of it is left.

    It returns whether it has pushed or ended. The lock of the batch lets only one process do it. It does nothing if
    another process has done it, or if the queue of its callback was dropped: then the batch stays open.
    """
    batches = context.engine.batches

    def act(cursor: Cursor, table: Table, params: Params) -> bool:
        pushes = batches.lock_batch(cursor, table, {"id": id})
        if pushes is None:
            return False
        # After the lock, so that changes committed before it are seen.
        batch = next(iter(batches.open_batches(cursor, table, {"after": id - 1, "n": 1})), None)
        row = batches.batch_progress(cursor, table, {"id": id})
        if batch is None or batch.id != id or row is None:
            return False
        progress = progress_of(context, row)
        done = False
        if batch.fails and _pushed(context, cursor, pushes.failed, id, progress, now):
            batches.note_failed(cursor, table, {"id": id, "now": context.time(now)})
            done = True
        if batch.ends and _pushed(context, cursor, pushes.then, id, progress, now):
            numbers: Params = {"pushed": progress.total, "cancelled": progress.cancelled, "dead": progress.dead}
            batches.end_batch(cursor, table, {"id": id, "now": context.time(now), **numbers})
            done = True
        return done

    return act


def progress_of(context: Context, row: BatchRow) -> BatchProgress:
    """Return the progress of a batch."""

    def time(value: Any) -> datetime | None:
        return None if value is None else context.engine.load_time(value)

    ended = row.ended_at is not None
    waiting, in_progress = (0, 0) if ended else (row.waiting, row.in_progress)
    dead = row.dead if ended else row.dead_now
    cancelled = row.cancelled if ended else row.cancelled + row.cancelled_since
    total = row.pushed if ended else row.pushed + row.pushed_since
    return BatchProgress(
        waiting=waiting,
        in_progress=in_progress,
        finished=total - waiting - in_progress - dead - cancelled,
        dead=dead,
        cancelled=cancelled,
        opened_at=context.engine.load_time(row.opened_at),
        failed_at=time(row.failed_at),
        ended_at=time(row.ended_at),
    )


# -- private -----------------------------------------------------------------------------------------------------------


def _act(context: Context, batch: OpenBatchRow, now: datetime | None) -> bool:
    """Push the due callbacks of an open batch, and end it if it is finished. Return whether it did either."""
    if batch.cancels:
        cancel(context, batch.id, dead=False, now=now)
    elif not batch.ends and not batch.fails:
        return False
    return context.run(settle(context, batch.id, now), {})


def _pushed(
    context: Context, cursor: Cursor, pushes: str | None, id: int, progress: BatchProgress, now: datetime | None
) -> bool:
    """Push a callback, if there is one. Return whether that could be done: its queue may have been dropped."""
    if pushes is None:
        return True
    values = json.loads(pushes)
    engine = context.engine
    there = engine.catalogue.names(cursor, engine.shared, {})
    name = catalogue.name_in(there, values["table"])
    table = None if name is None else catalogue.there(engine, cursor, name)
    if table is None:
        return False
    definition = table.definition
    own = catalogue.name_in(there, context.table.table_name) or context.table.name  # it may have been renamed
    numbers = {name: getattr(progress, name) for name in ("total", "finished", "dead", "cancelled")}
    payload: str = values["payload"]
    params: Params = {
        "producer": context.who,
        "now": context.time(now),
        "payload": b64decode(payload) if definition.payload == "bytes" else payload,
        "headers": dump_headers(values.get("headers", {}) | {BATCH: {"id": id, "queue": own, **numbers}}),
        "delay": 0 if definition.order == "due" else None,
        "due": None,
        "expires": None,
        "unique_for": None,
        "priority": 0,
        "group": "" if definition.strict else None,
        "key": None,
        "batch_id": None,
    }
    engine.messages.push(cursor, table, params)
    return True
