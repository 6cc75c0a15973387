"""Finishes: complete, fail, release, extend. Each acts only under the token of its claim."""

from __future__ import annotations

import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, cast

from tablequeue.definition import Duration
from tablequeue.engines.base import Table
from tablequeue.engines.connection import Cursor
from tablequeue.errors import BadInput, LeaseLost
from tablequeue.message import Claim, checked_id, checked_token
from tablequeue.operations.claim import promote_after
from tablequeue.operations.context import Context, Params, seconds
from tablequeue.operations.results import completing, dump
from tablequeue.states import FailedState


def complete(
    context: Context,
    claims: Iterable[Claim],
    now: datetime | None,
    connection: Any,
    results: Sequence[Any] | None = None,
) -> None:
    claims = tuple(claims)
    if results is not None and len(results) != len(claims):
        raise BadInput(f"There are {len(claims)} messages and {len(results)} results.", "Give one for each, or None.")
    complete: Callable[..., list[int]] = context.messages.complete
    dumped = dump(context, results or ())
    if context.table.definition.results:
        kept = {claim.id: result for claim, result in zip(claims, dumped, strict=False) if result is not None}
        complete = completing(context, kept)
    try:
        _finish(context, complete, claims, {"now": context.time(now)}, "completed", connection)
    except LeaseLost:
        promote_after(context, now, connection, len(claims))  # for the others of the batch, which were completed
        raise
    promote_after(context, now, connection, len(claims))


def release(context: Context, claims: Iterable[Claim], delay: Duration, now: datetime | None, connection: Any) -> None:
    _need_lease(context, "given back")
    params: Params = {"delay": seconds(delay, "delay"), "now": context.time(now)}
    _finish(context, context.messages.release, claims, params, "released", connection)


def fail(
    context: Context,
    claim: Claim,
    error: str | BaseException,
    retry_in: Duration | None,
    retry: bool,
    now: datetime | None,
    connection: Any,
) -> FailedState:
    definition = context.table.definition
    delay = definition.backoff.seconds(claim.attempts) if retry_in is None else seconds(retry_in, "retry_in")
    params: Params = {
        **_held(claim),
        "error": _words(error),
        "delay": delay,
        "max_attempts": definition.max_attempts if retry else 0,
        "now": context.time(now),
    }
    state = context.run(context.messages.fail, params, connection)
    if state is None:
        raise not_held([claim.id], 1, "failed")
    if state == "dead":
        promote_after(context, now, connection)
    return cast(FailedState, state)


def abandon(context: Context, claims: Sequence[Claim], why: BaseException) -> None:
    """Give back messages that nobody works on any more; where delivery is at most once, fail them instead."""
    if context.table.definition.delivery == "at_most_once":
        for claim in claims:
            fail(context, claim, why, None, True, None, None)
    else:
        release(context, claims, 0, None, None)


def extend(context: Context, claim: Claim, lease: Duration | None, now: datetime | None, connection: Any) -> datetime:
    _need_lease(context, "extended")
    lease = context.table.definition.lease if lease is None else seconds(lease, "seconds")
    params: Params = {**_held(claim), "lease": lease, "now": context.time(now)}
    until = context.run(context.messages.extend, params, connection)
    if until is None:
        raise not_held([claim.id], 1, "extended")
    return context.engine.load_time(until)


def _finish(
    context: Context,
    operation: Callable[..., list[int]],
    claims: Iterable[Claim],
    params: Params,
    done: str,
    connection: Any,
) -> None:
    """Finish the claims, all in one transaction; then raise `LeaseLost` for those that were no longer held."""
    by_token: dict[str, list[int]] = defaultdict(list)
    for claim in claims:
        by_token[claim.token].append(claim.id)
    for token in by_token:
        checked_token(token)

    def finish_each(cursor: Cursor, table: Table, params: Params) -> list[int]:
        under = (
            (params | {"token": token, "ids": context.engine.dump_ids(ids)}, ids) for token, ids in by_token.items()
        )
        return [id for values, ids in under for id in set(ids).difference(operation(cursor, table, values))]

    if len(by_token) == 1:
        ((token, ids),) = by_token.items()
        params |= {"token": token, "ids": context.engine.dump_ids(ids)}
        finished = context.run(operation, params, connection)
        lost = list(set(ids).difference(finished)) if len(finished) < len(ids) else []
    else:
        lost = context.run(finish_each, params, connection) if by_token else []
    if lost:
        raise not_held(sorted(lost), sum(map(len, by_token.values())), done)


def _need_lease(context: Context, done: str) -> None:
    if context.table.definition.delivery == "at_most_once":
        raise BadInput(
            f"A message delivered at most once has no lease and cannot be {done}.",
            "Complete it or fail it; to try messages again, use a queue with delivery='at_least_once'.",
        )


def _held(claim: Claim) -> Params:
    return {"id": checked_id(claim.id), "token": checked_token(claim.token)}


def _words(error: str | BaseException) -> str:
    if isinstance(error, BaseException):
        words = "".join(traceback.format_exception(error))
    elif isinstance(error, str):
        words = error
    else:
        raise BadInput(f"error is a {type(error).__name__}.", "Give a string or an exception.")
    # People read the error: characters that no database text can hold are shown as escapes.
    return words.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def not_held(ids: list[int], total: int, done: str) -> LeaseLost:
    if total == 1:
        cause = f"The lease on message {ids[0]} is lost, so it was not {done}."
    else:
        first = ", ".join(map(str, ids[:5])) + (", ..." if len(ids) > 5 else "")
        others = total - len(ids)
        cause = f"The leases on {len(ids)} of {total} messages are lost ({first}); the other {others} were {done}."
    return LeaseLost(
        cause,
        "It expired, or the message was finished before: make the lease longer than the work, or extend it in time.",
        ids,
    )
