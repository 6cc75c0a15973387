"""Finishes: complete, fail, release, extend. Each acts only under the token of its claim."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar, cast

from tablequeue.engines.connection import Cursor
from tablequeue.engines.plan import Ways
from tablequeue.engines.table import Table
from tablequeue.errors import BadInput, LeaseLost
from tablequeue.model.attempts import error_text
from tablequeue.model.connection import Connection
from tablequeue.model.message import Claim, checked_claims, checked_token
from tablequeue.model.pacing import Duration
from tablequeue.model.states import FailedState
from tablequeue.observe.counters import counters
from tablequeue.verbs.after import COMPLETED, LEFT, follow
from tablequeue.verbs.context import Context, Params, seconds
from tablequeue.verbs.refusals import Refusal, check, first_of
from tablequeue.verbs.results import completing, dump
from tablequeue.verbs.sweep import end_leases

C = TypeVar("C", bound=Collection[int])
Complete = Callable[[Cursor, Table, Params], list[int]]

# The verbs that queues which deliver at most once refuse.
RELEASE, EXTEND = (
    Ways(
        {
            "at_most_once": Refusal(
                f"A message delivered at most once has no lease and cannot be {done}.",
                "Complete it or fail it; to try messages again, use a queue with delivery='at_least_once'.",
            )
        }
    )
    for done in ("given back", "extended")
)


def complete(
    context: Context,
    claims: Iterable[Claim],
    now: datetime | None,
    connection: Connection | None,
    results: Sequence[Any] | None = None,
) -> None:
    claims = checked_claims(claims, Claim)
    if results is not None and (not isinstance(results, Sequence) or isinstance(results, str | bytes)):
        raise BadInput(f"results is {results!r}.", "Give a list, with one for each message in their order, or None.")
    if results is not None and len(results) != len(claims):
        raise BadInput(f"There are {len(claims)} messages and {len(results)} results.", "Give one for each, or None.")
    kept = dump(context, results) if results is not None else ()
    complete = _keep_results(context, claims, kept) if context.table.definition.results else context.messages.complete
    completed, lost = _finish(context, complete, claims, {"now": context.time(now)}, "completed", connection)
    counters.add("completed_messages", context.table.name, sum(map(len, completed.values())))
    follow(context, COMPLETED, now, connection, len(claims))
    if lost is not None:
        raise lost


def release(
    context: Context, claims: Iterable[Claim], delay: Duration, now: datetime | None, connection: Connection | None
) -> None:
    check(context.table, RELEASE)
    claims = checked_claims(claims, Claim)
    params: Params = {"delay": seconds(delay, "delay"), "now": context.time(now)}
    released, lost = _finish(context, context.messages.release, claims, params, "released", connection)
    counters.add("released_messages", context.table.name, sum(map(len, released.values())))
    follow(context, LEFT, now, connection, sum(sum(under.values()) for under in released.values()))
    if lost is not None:
        raise lost


def fail(
    context: Context,
    claims: Iterable[Claim],
    error: str | BaseException,
    retry_in: Duration | None,
    retry: bool,
    now: datetime | None,
    connection: Connection | None,
) -> list[FailedState]:
    """Fail the attempts, each with a delay of its own. Return the new states, aligned with the claims."""
    claims = checked_claims(claims, Claim)
    definition = context.table.definition
    delay = None if retry_in is None else seconds(retry_in, "retry_in")
    delays = {
        (claim.token, claim.id): definition.backoff.seconds(claim.attempt) if delay is None else delay
        for claim in claims
    }
    params: Params = {
        "error": error_text(error),
        "max_attempts": definition.max_attempts if retry else 0,
        "now": context.time(now),
    }
    states, lost = _finish(context, context.messages.fail, claims, params, "failed", connection, delays)
    for state, number in Counter(state for under in states.values() for state in under.values()).items():
        counters.add("failed_messages", context.table.name, number, state)
    ended = sum(state in ("dead", "cancelled", "blocked") for under in states.values() for state in under.values())
    follow(context, LEFT, now, connection, ended)
    if lost is not None:
        raise lost
    return [cast(FailedState, states[claim.token][claim.id]) for claim in claims]


def abandon(context: Context, claims: Sequence[Claim], why: BaseException) -> None:
    """Release messages that no handler works on any more; where delivery is at most once, fail them instead."""
    if context.table.definition.delivery == "at_most_once":
        fail(context, claims, why, None, True, None, None)
    else:
        release(context, claims, 0, None, None)


def extend(
    context: Context,
    claims: Iterable[Claim],
    lease: Duration | None,
    now: datetime | None,
    connection: Connection | None,
) -> list[datetime]:
    """Extend the leases. Return their new ends, aligned with the claims."""
    check(context.table, EXTEND)
    claims = checked_claims(claims, Claim)
    lease = context.table.definition.lease if lease is None else seconds(lease, "lease")
    params: Params = {"lease": lease, "now": context.time(now)}
    ends, lost = _finish(context, context.messages.extend, claims, params, "extended", connection)
    if not lease:
        end_leases(context, now, connection)
    if lost is not None:
        raise lost
    return [context.engine.load_time(ends[claim.token][claim.id]) for claim in claims]


def extend_held(context: Context, id: int, lease: Duration, now: datetime | None) -> bool:
    """Extend the lease on a message of any consumer; return whether the message is in progress."""
    check(context.table, EXTEND)
    token = context.run(context.messages.holder, {"id": id})
    if token is None:
        return False
    lease = seconds(lease, "lease")
    params: Params = {"lease": lease, "now": context.time(now), "token": token}
    extended = bool(context.run(context.messages.extend, params | {"ids": context.engine.dump_ids([id])}))
    if extended and not lease:
        end_leases(context, now, None)
    return extended


def _finish(
    context: Context,
    operation: Callable[[Cursor, Table, Params], C],
    claims: Iterable[Claim],
    params: Params,
    done: str,
    connection: Connection | None,
    delays: Mapping[tuple[str, int], float] | None = None,
) -> tuple[dict[str, C], LeaseLost | None]:
    """Finish the claims, all in one transaction.

    Return two values: what the operation returned for each token, which is a collection of the ids that were held; and
    the error for the ids that were not held.
    """
    engine = context.engine
    by_token: dict[str, list[int]] = defaultdict(list)
    for claim in claims:
        by_token[claim.token].append(claim.id)
    for token in by_token:
        checked_token(token)

    def under(token: str, ids: Sequence[int]) -> Params:
        if delays is None:
            return params | {"token": token, "ids": engine.dump_ids(ids)}
        return params | {"token": token} | engine.failing({id: delays[token, id] for id in ids})

    def finish_each(cursor: Cursor, table: Table, params: Params) -> dict[str, C]:
        return {token: operation(cursor, table, under(token, ids)) for token, ids in by_token.items()}

    if len(by_token) == 1:
        ((token, ids),) = by_token.items()
        finished = {token: context.run(operation, under(token, ids), connection)}
    else:
        finished = context.run(finish_each, params, connection) if by_token else {}
    lost: list[int] = []
    for token, ids in by_token.items():
        if len(finished[token]) < len(ids):
            lost += set(ids).difference(finished[token])
    if not lost:
        return finished, None
    counters.add("lost_leases", context.table.name, len(lost))
    return finished, not_held(sorted(lost), sum(map(len, by_token.values())), done)


def not_held(ids: list[int], total: int, done: str) -> LeaseLost:
    if total == 1:
        cause = f"The lease on message {ids[0]} is lost, so it was not {done}."
    else:
        others = total - len(ids)
        lost = f"The leases on {len(ids)} of {total} messages are lost ({first_of(ids)})"
        cause = f"{lost}; the other {others} were {done}."
    return LeaseLost(
        cause,
        "It expired, or the message was finished before: make the lease longer than the work, or extend it in time.",
        ids,
    )


def _keep_results(context: Context, claims: Sequence[Claim], results: Sequence[str | None]) -> Complete:
    kept = {claim.id: result for claim, result in zip(claims, results, strict=False) if result is not None}
    return completing(context, kept)
