"""Reads of a queue. None of them claims or changes a message, or waits for a lock."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from tablequeue.engines.columns import COLUMNS
from tablequeue.engines.texts import Row
from tablequeue.errors import BadInput
from tablequeue.model.attempts import load_errors
from tablequeue.model.message import Message, checked_id
from tablequeue.model.pacing import Duration
from tablequeue.model.payload import load_headers, load_or_show
from tablequeue.model.states import STATES, LiveState
from tablequeue.verbs.context import Context, Params, count, seconds

# Messages that are looked at in one read, or changed in one transaction: few enough that consumers can claim in
# between.
BATCH = 1000
_LARGEST = (1 << 63) - 1


def peek(context: Context, limit: int, state: LiveState, after: int = 0) -> list[Message]:
    if state not in STATES:
        raise BadInput(f"{state!r} is not a state of a message.", f"Give one of: {', '.join(STATES)}.")
    params: Params = {"n": count(limit, "limit"), "state": state, "after": checked_id(after)}
    return [_message(context, row) for row in context.run(context.reads.peek, params)]


def in_batches(context: Context, *states: LiveState) -> Iterator[list[Message]]:
    """Return the messages in these states, a batch at a time, in the order of their ids, whatever their states.

    Each batch is read when it is asked for, after the caller has worked on the batch before.
    """
    after = 0
    while found := [message for state in states for message in peek(context, BATCH, state, after)]:
        batch = sorted(found, key=lambda message: message.id)[:BATCH]
        yield batch
        after = batch[-1].id


def find(context: Context, id: int) -> Message | None:
    row = context.run(context.reads.find, {"id": checked_id(id)})
    if row is None and context.table.definition.keeps_history:
        # In this order: a message that has left the queue meanwhile is in the history, and never comes back from there.
        row = next(iter(history_rows(context, id, id, 1)), None)
    return None if row is None else _message(context, row)


def history(context: Context, limit: int, after: int | None = None) -> list[Message]:
    high = _LARGEST if after is None else checked_id(after) - 1
    return [_message(context, row) for row in history_rows(context, 0, high, count(limit, "limit"))]


def lost(context: Context, limit: int, after: int, older_than: Duration | None, now: datetime | None) -> list[Message]:
    definition = context.table.definition
    if definition.delivery != "at_most_once":
        raise BadInput(
            f"The queue {context.table.name!r} delivers at least once: a message is never lost there.",
            "Look at peek(state='in_progress') and dead().",
        )
    age = definition.lease if older_than is None else seconds(older_than, "older_than")
    params: Params = {"n": count(limit, "limit"), "after": checked_id(after), "age": age, "now": context.time(now)}
    return [_message(context, row) for row in context.run(context.reads.lost, params)]


def history_bounds(context: Context) -> tuple[int, int] | None:
    """Return the lowest and the highest id in the history; None if it is empty."""
    need_history(context)
    low, high = context.run(context.reads.history_bounds, {})
    return None if low is None else (low, high)


def history_rows(context: Context, low: int, high: int, limit: int) -> list[Row]:
    """Return rows of COLUMNS with ids from `low` to `high`, highest first."""
    need_history(context)
    return context.run(context.reads.history, {"low": low, "high": high, "n": limit})


def need_history(context: Context) -> None:
    if not context.table.definition.keeps_history:
        raise BadInput(
            f"The queue {context.table.name!r} keeps no history.",
            "Create a queue with history='keep' to have one, and move the messages there.",
        )


def _message(context: Context, row: Row) -> Message:
    values: dict[str, Any] = dict(zip(COLUMNS, row, strict=True))
    load_time = context.engine.load_time
    for name in COLUMNS:
        if name.endswith(("_at", "_until")) and values[name] is not None:
            values[name] = load_time(values[name])
    values["payload"] = load_or_show(context.codec, values["payload"])
    values["group"] = values["group"] or None
    values["headers"] = load_headers(values["headers"])
    values["errors"] = load_errors(values["errors"], load_time)
    return Message(**values)
