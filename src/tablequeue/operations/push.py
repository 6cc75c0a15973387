"""Pushing: payloads become rows, all of a call or none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from tablequeue.errors import BadInput, BadPayload
from tablequeue.operations.desk import Desk, Params, seconds
from tablequeue.payload import dump_headers

Delay = float | timedelta


def push(
    desk: Desk,
    payload: Any,
    delay: Delay | None,
    due: datetime | None,
    headers: Mapping[str, Any] | None,
    now: datetime | None,
    connection: Any,
) -> int:
    params = _params(desk, delay, due, headers, now)
    params["payload"] = desk.codec.dump(payload)
    return desk.runner.run(desk.engine.push, desk.table, params, connection)


def push_many(
    desk: Desk,
    payloads: Iterable[Any],
    delay: Delay | None,
    due: datetime | None,
    headers: Mapping[str, Any] | None,
    now: datetime | None,
    connection: Any,
) -> list[int]:
    params = _params(desk, delay, due, headers, now)
    # Encoded whole before the database is touched: a bad payload refuses the call, and the database is not held
    # while the caller's iterable thinks.
    dump = desk.codec.dump
    rows: list[str | bytes] = []
    try:
        for payload in payloads:
            rows.append(dump(payload))
    except BadPayload as error:
        raise BadPayload(f"Payload number {len(rows) + 1}: {error.cause}", error.remedy) from None
    if not rows:
        return []
    params["payloads"] = rows
    return desk.runner.run(desk.engine.push_many, desk.table, params, connection)


def _params(
    desk: Desk,
    delay: Delay | None,
    due: datetime | None,
    headers: Mapping[str, Any] | None,
    now: datetime | None,
) -> Params:
    if delay is not None and due is not None:
        raise BadInput("Both delay and due are given.", "Give one of them.")
    return {
        "headers": None if headers is None else dump_headers(headers),
        "producer": desk.who,
        "delay": None if delay is None else seconds(delay, "delay"),
        "due": None if due is None else desk.time(due, "due"),
        "now": None if now is None else desk.time(now),
    }
