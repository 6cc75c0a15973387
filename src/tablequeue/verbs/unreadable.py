"""Messages with unreadable payloads: each becomes a dead letter by itself, and the others are delivered.

Such messages come from programs that push by SQL, or from a newer Python, which can read payloads that this one cannot.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from tablequeue.engines.params import Params
from tablequeue.engines.texts import Row
from tablequeue.errors import BadPayload, TablequeueError
from tablequeue.model.attempts import stored_errors, with_error
from tablequeue.model.connection import Connection
from tablequeue.model.message import ID, PAYLOAD
from tablequeue.verbs.after import CHANGED, follow
from tablequeue.verbs.context import Context


def readable(
    context: Context, token: str, rows: Sequence[Row], now: datetime | None, connection: Connection | None
) -> Iterator[tuple[Row, Any]]:
    """Yield the claimed rows that can be read, with their payloads. The others become dead letters, with the reason."""
    for row in rows:
        try:
            yield row, context.codec.load(row[PAYLOAD])
        except BadPayload as error:
            _bury(context, token, row, error.cause, now, connection)


def _bury(
    context: Context, token: str, row: Row, reason: str, now: datetime | None, connection: Connection | None
) -> None:
    if not token:  # taken, in the caller's transaction
        context.run(context.messages.put_back, _buried(context, row, reason), connection)
        return
    params: Params = {
        **context.engine.failing({row[ID]: 0}),
        "token": token,
        "error": reason,
        "max_attempts": 0,
        "now": context.time(now),
    }
    try:
        context.run(context.messages.fail, params, connection)
    except TablequeueError:
        if connection is not None:
            raise
        return  # it comes back when its lease ends, and becomes a dead letter then
    follow(context, CHANGED, now, connection)


def _buried(context: Context, row: Row, reason: str) -> Params:
    id, payload, headers, attempts, pushed_at, popped_at, _, priority, group, key, due, errors = row
    # Engines write times into errors as text or numbers.
    at = popped_at if isinstance(popped_at, (str, int)) else str(popped_at)
    error = {"attempt": attempts, "at": at, "consumer": context.who, "error": reason}
    return {
        "id": id,
        "payload": payload,
        "headers": headers,
        "attempts": attempts,
        "pushed_at": pushed_at,
        "popped_at": popped_at,
        "priority": priority,
        "group": group,
        "key": key,
        "due": due,
        "consumer": context.who,
        "errors": json.dumps(with_error(stored_errors(errors), error)),
    }
