"""Progress of messages: reports of the consumers that hold them, in a table beside the queue.

The first report makes the table. A row is of one claim, by its token, and is shown only while that claim is held. So
no finish has to delete it, and a queue without reports does nothing about them. Reports delete old rows from time to
time.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from contextlib import suppress
from datetime import datetime
from time import monotonic
from typing import Any

from tablequeue.engines.plan import Ways
from tablequeue.errors import BadInput, TablequeueError
from tablequeue.model.connection import Connection
from tablequeue.model.message import Claim, Message, checked_claims, checked_token
from tablequeue.model.payload import dump_detail
from tablequeue.model.progress import Progress
from tablequeue.verbs.context import Context, Params
from tablequeue.verbs.finish import not_held
from tablequeue.verbs.refusals import Refusal, check

# Seconds between two writes of one claim.
REPORT_EVERY = 1.0
# Seconds between two looks of one process for old reports, and how many it deletes at once.
FORGET_EVERY = 60.0
FORGET_SIZE = 1000

REPORTS = Ways(
    {
        "at_most_once": Refusal(
            "A message delivered at most once is not held, so it has no progress.",
            "Use a queue with delivery='at_least_once'.",
        ),
        "ranges": Refusal(
            "The messages of the {queue} are claimed as ranges of a log, which have no progress.",
            "Subscribe with ordered=True, or use a queue.",
        ),
    }
)


def report(
    context: Context, claim: Claim, fraction: float, detail: Any, now: datetime | None, connection: Connection | None
) -> None:
    (claim,) = checked_claims((claim,), Claim)
    if not isinstance(fraction, (int, float)) or isinstance(fraction, bool) or not 0 <= fraction <= 1:
        raise BadInput(f"fraction is {fraction!r}.", "Give a number from 0 to 1.")
    if _is_dropped(claim, fraction):
        return
    check(context.table, REPORTS)
    params: Params = {
        "id": claim.id,
        "token": checked_token(claim.token),
        "fraction": float(fraction),
        "detail": None if detail is None else dump_detail(detail),
        "now": context.time(now),
    }
    with context.runner.whole(None if context.table.has_progress else connection, refuses=True):
        make(context, connection)
        if not context.run(context.engine.progress.report_progress, params, connection):
            raise not_held([claim.id], 1, "changed")
    if connection is None:  # else a rollback may undo it
        claim.reported = monotonic(), fraction
    if monotonic() >= context.table.next_forget:
        context.table.next_forget = monotonic() + FORGET_EVERY
        with suppress(TablequeueError):  # the report has taken effect
            gone = context.run_apart(context.engine.progress.forget_progress, {"n": FORGET_SIZE}, connection)
            context.table.next_forget = 0.0 if gone == FORGET_SIZE else monotonic() + FORGET_EVERY


def make(context: Context, connection: Connection | None = None) -> None:
    """Make the table of reports, unless it is known to exist."""
    if not context.table.has_progress:
        context.run_apart(context.engine.catalogue.create_progress, {}, connection)
        # In a caller's transaction a rollback removes it.
        context.table.has_progress = connection is None or not context.engine.sweeps_within


def of(context: Context, ids: Collection[int]) -> dict[int, Progress]:
    """Return the progress of messages among `ids` that are in progress and have a report, by their ids."""
    table, engine = context.table, context.engine
    if not ids or not (table.has_progress or context.run(engine.catalogue.has_table, {"table": _name(context)})):
        return {}
    rows = context.run(engine.progress.reported_progress, {"ids": engine.dump_ids([*ids])})
    return {
        row.id: Progress(
            row.fraction,
            None if row.detail is None else json.loads(row.detail),
            engine.load_time(row.reported_at),
            row.attempt,
        )
        for row in rows
    }


def reported(context: Context, messages: Iterable[Message]) -> dict[int, Progress]:
    """Return the progress of messages that are in progress and have a report, by their ids."""
    return of(context, [message.id for message in messages if message.state == "in_progress"])


# -- private -----------------------------------------------------------------------------------------------------------


def _is_dropped(claim: Claim, fraction: float) -> bool:
    """Whether the last committed write is less than a second ago, unless this report is the first one that says 1."""
    at, last = getattr(claim, "reported", (-REPORT_EVERY, 0.0))
    return monotonic() - at < REPORT_EVERY and (fraction < 1 or last == 1)


def _name(context: Context) -> str:
    return context.engine.words(context.table)["progress"]
