"""Complete and claim in one transaction, with one flush instead of two."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from time import monotonic

from tablequeue.engines.texts import Row
from tablequeue.model.connection import Connection
from tablequeue.model.message import Claim, checked_token
from tablequeue.model.pacing import Duration
from tablequeue.observe.counters import counters
from tablequeue.verbs.after import COMPLETED, follow
from tablequeue.verbs.claim import SameGroup, check_same_group, claimed, leased, topped_up
from tablequeue.verbs.context import Context, Params
from tablequeue.verbs.finish import complete, not_held
from tablequeue.verbs.sweep import keep_up


def complete_and_claim(
    context: Context,
    claims: Sequence[Claim],
    n: int,
    lease: Duration | None,
    now: datetime | None,
    connection: Connection | None,
    same_group: SameGroup = False,
) -> tuple[str, Sequence[Row]]:
    """Complete `claims`, or raise `LeaseLost` and change nothing; then claim as `claim` does.

    After the completion no error is raised: fewer messages are claimed, or none. Else the caller would repeat the call,
    and get `LeaseLost` for claims that it completed itself.

    It takes two transactions in a queue with groups, where the end of one message makes the next one ready; if others
    would wait for a lock of the claim between the client's statements; and in a caller's transaction, where there is
    nothing to gain.
    """
    if same_group:
        check_same_group(context, connection)
    token, params = leased(context, n, lease, now, connection)
    table, engine = context.table, context.engine
    tokens = {one.token for one in claims}
    simple = table.definition.delivery == "at_least_once" and not table.definition.grouped and len(tokens) == 1
    if not simple or now is not None or connection is not None:
        complete(context, claims, now, connection)
        return token, claimed(context, params, now, connection, refusable=connection is not None, same_group=same_group)
    ids = list({one.id for one in claims})
    held: Params = {"held": checked_token(tokens.pop()), "ids": engine.dump_ids(ids), "number": len(ids)}
    completed, rows = context.run(context.messages.complete_and_claim, params | held)
    if completed is not None:
        lost = sorted(set(ids).difference(completed))
        counters.add("lost_leases", table.name, len(lost))
        raise not_held(lost, len(ids), "completed")
    counters.add("completed_messages", table.name, len(ids))
    follow(context, COMPLETED, now, None)
    if rows is None:
        return token, claimed(context, params, now, connection, refusable=False)
    # After the completion: an earlier sweep would take the message from a consumer that is a little late.
    if monotonic() >= table.next_sweep:
        keep_up(context, now)
    claimed_rows = topped_up(context, context.messages.claim, rows, params, now, connection, refusable=False)
    counters.add("popped_messages", table.name, len(claimed_rows))
    return token, claimed_rows
