"""Claims: give ready messages a lease. A claim that finds too few messages sweeps the queue."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from datetime import datetime
from random import random
from time import monotonic, sleep
from typing import Any, Literal

from tablequeue.engines.messages import Messages
from tablequeue.engines.plan import Ways
from tablequeue.engines.table import Table
from tablequeue.engines.texts import Row
from tablequeue.errors import BadInput, TablequeueError
from tablequeue.model.connection import Connection
from tablequeue.model.message import GROUP, ID
from tablequeue.model.pacing import Duration
from tablequeue.observe.counters import counters
from tablequeue.verbs.context import Context, Params, count, seconds
from tablequeue.verbs.refusals import Refusal, check
from tablequeue.verbs.sweep import keep_up, sweep

Remove = Callable[[Any, Any, Params], Any]

# Claims that some queues refuse.
CHOSEN_GROUP = Ways(
    {
        "not fair": Refusal(
            "The {queue} has no fair groups, of which one could be chosen.",
            "Use pop_many, or create a queue with groups='fair'.",
        ),
        "limited or at_most_once": Refusal(
            "The {queue} has limits, or delivers at most once: no group of it can be chosen.",
            "Use pop_many; or switch concurrency and rate off by alter().",
        ),
    }
)
SAME_GROUP = Ways(
    {
        "not grouped": Refusal(
            "The {queue} has no ordered groups, so same_group means nothing.",
            "Leave same_group out, or create a queue with groups=True or strict=True.",
        )
    }
)
TAKE = Ways(
    {
        "batches": Refusal(
            "The {queue} has batches: their messages cannot be taken.",
            "Pop the message and complete it, both with connection=.",
        )
    }
)
PREFETCH = Ways(
    {
        "at_most_once": Refusal(
            "prefetch does not go with at_most_once: messages not yet handed over would be lost.", "Leave prefetch out."
        )
    }
)

# The maximum of claims in one call while a group with limits had room but nothing was found, and the longest random
# pause before each, in seconds: about the time of a commit.
TRIES, TRY_AGAIN_AFTER = 5, 0.01

# The most groups that a process remembers after claims with "open": a claim sends their names, and passes over them.
MOST_PASSED = 64

SameGroup = bool | Literal["open"]
"""Whether a claim is of one group, which other claims then pass over, or with "open" only while messages are in
progress."""


def claim(
    context: Context,
    n: int,
    lease: Duration | None,
    now: datetime | None,
    connection: Connection | None,
    same_group: SameGroup = False,
) -> tuple[str, Sequence[Row]]:
    """Claim messages; return a new token, and the rows claimed under it, as CLAIMED."""
    if same_group:
        check_same_group(context, connection)
    token, params = leased(context, n, lease, now, connection)
    return token, claimed(context, params, now, connection, same_group=same_group)


def claim_group(
    context: Context, group: str, n: int, lease: Duration | None, now: datetime | None
) -> tuple[str, Sequence[Row]]:
    """Claim messages of one group; return a new token, and the rows claimed under it, as CLAIMED."""
    check(context.table, CHOSEN_GROUP)
    token, params = leased(context, n, lease, now)
    params["group"] = group
    return token, _swept(context, context.messages.claim_group, params, now, None, refusable=True)


def claimed(
    context: Context,
    params: Params,
    now: datetime | None,
    connection: Connection | None,
    refusable: bool = True,
    same_group: SameGroup = False,
) -> Sequence[Row]:
    """Claim with the parameters of `leased`. Unless `refusable`, no rows are returned for an error."""
    if same_group:
        return _claimed_run(context, params, now, refusable, open=same_group == "open")
    remove = context.table.bound(_removing, context.messages)
    return _swept(context, remove, params, now, connection, refusable)


def _claimed_run(context: Context, params: Params, now: datetime | None, refusable: bool, open: bool) -> Sequence[Row]:
    """Claim messages of one group, a run; see `create_groups` for open runs, for which the process lets groups take
    turns.

    A group that was claimed from comes after the others that have messages ready. When there is no other one, a new
    round begins.
    """
    table, passed = context.table, context.table.passed if open else ()
    more: Params = {"run": -1 if open else 1, "passed": json.dumps(passed, ensure_ascii=False)}
    rows = _swept(context, context.messages.claim_run, params | more, now, None, refusable)
    if open and rows:
        group = rows[0][GROUP]
        table.passed = (group,) if group in passed else (*passed[1 - MOST_PASSED :], group)
    return rows


def check_same_group(context: Context, connection: Connection | None) -> None:
    """Refuse to claim several messages of a group where a group has no order, or in a caller's transaction."""
    check(context.table, SAME_GROUP)
    if connection is not None:
        raise BadInput(
            "A claim with same_group cannot be a part of a transaction, which may not see all messages of the group.",
            "Pop without connection=, then complete in your transaction: complete_many(messages, connection=...).",
        )


def leased(
    context: Context, n: int, lease: Duration | None, now: datetime | None, connection: Connection | None = None
) -> tuple[str, Params]:
    """Return a new token, and the parameters of a claim under it."""
    token = secrets.token_hex(16)
    return token, _params(context, n, token, now) | context.table.plan.way(LEASES)(context, lease)


def check_claim(
    context: Context,
    n: int,
    lease: Duration | None,
    now: datetime | None,
    connection: Connection,
    same_group: SameGroup,
) -> None:
    """Refuse wrong arguments before a call joins a caller's transaction: on SQLite that locks the database."""
    if same_group:
        check_same_group(context, connection)
    leased(context, n, lease, now, connection)


def check_take(context: Context, n: int, now: datetime | None, connection: Connection | None) -> Params:
    """Return the parameters of a take. Refuse wrong arguments before the call joins the caller's transaction."""
    if connection is None:
        raise BadInput(
            "take() needs a connection: the message is removed in its transaction.",
            "Give a connection, or use pop() and complete().",
        )
    check(context.table, TAKE)
    return _params(context, n, None, now)


def take(context: Context, params: Params, now: datetime | None, connection: Connection) -> Sequence[Row]:
    """Remove messages in the caller's transaction; return their rows, as CLAIMED."""
    return _swept(context, context.messages.take, params, now, connection, refusable=True)


def check_prefetch(context: Context, prefetch: int) -> None:
    """Refuse to prefetch messages where delivery is at most once."""
    if prefetch != 1:
        check(context.table, PREFETCH)


def _params(context: Context, n: int, token: str | None, now: datetime | None) -> Params:
    return {
        "n": count(n, "n"),
        "token": token,
        "consumer": context.who,
        "now": None if now is None else context.time(now),
    }


def _swept(
    context: Context,
    remove: Remove,
    params: Params,
    now: datetime | None,
    connection: Connection | None,
    refusable: bool,
) -> Sequence[Row]:
    """Claim; sweep before if a sweep is due, or after if too little was ready."""
    due = now is not None or monotonic() >= context.table.next_sweep
    refusal = keep_up(context, now, connection) if due else None
    try:
        rows = context.run(remove, params, connection)
    except TablequeueError:
        if refusable:
            raise
        return []
    if refusal is not None and refusable and not rows:
        raise refusal
    if not due:
        rows = topped_up(context, remove, rows, params, now, connection, refusable)
    if not rows and connection is None:
        rows = context.table.plan.way(AGAIN)(context, remove, params, refusable)
    counters.add("popped_messages", context.table.name, len(rows))
    return rows


def _tried_again(context: Context, remove: Remove, params: Params, refusable: bool) -> Sequence[Row]:
    """Claim again while a group is below its limit: other claims had locked its row for a moment."""
    try:
        for _ in range(TRIES):
            coming = context.run(context.reads.until_next, {"now": params["now"]})
            if coming.paused or coming.held or coming.seconds is None or coming.seconds > 0:
                break
            sleep(random() * TRY_AGAIN_AFTER)
            if rows := context.run(remove, params):
                return rows
    except TablequeueError:
        if refusable:
            raise
    return []


def topped_up(
    context: Context,
    remove: Remove,
    rows: Sequence[Row],
    params: Params,
    now: datetime | None,
    connection: Connection | None,
    refusable: bool = True,
) -> Sequence[Row]:
    """Return the rows, with more after a sweep if they are too few. No error loses rows that are claimed."""
    missing = params["n"] - len(rows)
    if not missing or (rows and (context.table.definition.claims_ranges or remove == context.messages.claim_run)):
        return rows
    try:
        if not sweep(context, now, connection):
            return rows
        more = context.run(remove, params | {"n": missing}, connection)
    except TablequeueError:
        # A caller's transaction may be unusable, and the rows with it.
        if connection is None and (rows or not refusable):
            return rows
        raise
    # A lease that has ended meanwhile: the message was claimed again, under the same token.
    again = {row[ID] for row in more}
    return context.table.in_order([*(row for row in rows if row[ID] not in again), *more])


def _removing(table: Table, messages: Messages) -> Remove:
    """Return the operation that claims: where delivery is at most once, it removes the messages."""
    return messages.take if table.definition.delivery == "at_most_once" else messages.claim


def _lease(context: Context, lease: Duration | None) -> Params:
    return {"lease": context.table.definition.lease if lease is None else seconds(lease, "lease")}


def _no_lease(context: Context, lease: Duration | None) -> Params:
    if lease is not None:
        raise BadInput("A message delivered at most once has no lease.", "Leave lease out.")
    return {}


LEASES = Ways({"at_most_once": _no_lease, "": _lease})
"""The parameters of a claim about its lease."""
AGAIN: Ways[Callable[[Context, Remove, Params, bool], Sequence[Row]]] = Ways(
    {"group_limited": _tried_again, "": lambda context, remove, params, refusable: []}
)
"""What the library does after a claim that found nothing."""
