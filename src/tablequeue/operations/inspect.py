"""Looking at a queue: nothing here claims a message, changes one or waits for a lock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from tablequeue.definition import Duration
from tablequeue.engines.texts import COLUMNS, Row
from tablequeue.errors import BadInput
from tablequeue.message import STATES, LiveState, Message, checked_id, load_errors
from tablequeue.operations.desk import Desk, count, seconds
from tablequeue.payload import load_headers, load_or_show

_LARGEST = (1 << 63) - 1


def peek(desk: Desk, limit: int, state: LiveState, after: int = 0) -> list[Message]:
    if state not in STATES:
        raise BadInput(f"{state!r} is not a state of a message.", f"Give one of: {', '.join(STATES)}.")
    params = {"n": count(limit, "limit"), "state": state, "after": checked_id(after)}
    return [_message(desk, row) for row in desk.runner.run(desk.engine.peek, desk.table, params)]


def find(desk: Desk, id: int) -> Message | None:
    row = desk.runner.run(desk.engine.find, desk.table, {"id": checked_id(id)})
    if row is None and desk.table.definition.keeps_history:
        # The queue first: what has left it by then is in the history, and nothing comes back from there.
        row = next(iter(history_rows(desk, id, id, 1)), None)
    return None if row is None else _message(desk, row)


def history(desk: Desk, limit: int, before: int | None = None) -> list[Message]:
    high = _LARGEST if before is None else checked_id(before) - 1
    return [_message(desk, row) for row in history_rows(desk, 0, high, count(limit, "limit"))]


def lost(desk: Desk, limit: int, older_than: Duration | None, now: datetime | None) -> list[Message]:
    definition = desk.table.definition
    if definition.delivery != "at_most_once":
        raise BadInput(
            f"The queue {desk.table.name!r} delivers at least once: a message is never lost there.",
            "Look at peek(state='in_progress') and dead().",
        )
    age = definition.lease if older_than is None else seconds(older_than, "older_than")
    params = {"n": count(limit, "limit"), "age": age, "now": desk.time(now)}
    return [_message(desk, row) for row in desk.runner.run(desk.engine.lost, desk.table, params)]


def history_bounds(desk: Desk) -> tuple[int, int] | None:
    """Lowest and highest id in the history; None if it is empty."""
    need_history(desk)
    low, high = desk.runner.run(desk.engine.history_bounds, desk.table, {})
    return None if low is None else (low, high)


def history_rows(desk: Desk, low: int, high: int, limit: int) -> list[Row]:
    """Raw rows of COLUMNS with ids from `low` to `high`, highest first: for bulk readers that make no objects."""
    need_history(desk)
    return desk.runner.run(desk.engine.history, desk.table, {"low": low, "high": high, "n": limit})


def history_batches(desk: Desk, low: int, high: int, size: int) -> Iterator[list[Row]]:
    """The whole range in short reads of up to `size` rows: no snapshot stays open on the way."""
    while low <= high and (rows := history_rows(desk, low, high, size)):
        yield rows
        high = rows[-1][0] - 1


def need_history(desk: Desk) -> None:
    if not desk.table.definition.keeps_history:
        raise BadInput(
            f"The queue {desk.table.name!r} keeps no history.", "Create a queue with history='keep' to have one."
        )


def _message(desk: Desk, row: Row) -> Message:
    values: dict[str, Any] = dict(zip(COLUMNS, row, strict=True))
    load_time = desk.engine.load_time
    for name in COLUMNS:
        if name.endswith(("_at", "_until")) and values[name] is not None:
            values[name] = load_time(values[name])
    values["payload"] = load_or_show(desk.codec, values["payload"])
    values["group"] = values["group"] or None
    values["headers"] = load_headers(values["headers"])
    # JSON, as text from some drivers, and read from others.
    errors = values["errors"]
    values["errors"] = load_errors(json.loads(errors) if isinstance(errors, str) else errors or [], load_time)
    return Message(**values)
