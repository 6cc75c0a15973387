"""Gives a message that waits another due time, or another priority."""

from __future__ import annotations

from datetime import datetime

from tablequeue.errors import BadInput
from tablequeue.model.connection import Connection
from tablequeue.model.message import checked_id
from tablequeue.model.pacing import Duration
from tablequeue.verbs.context import Context, Params, seconds
from tablequeue.verbs.inspect import find
from tablequeue.verbs.push import check_priority

# Why a message cannot be rescheduled, by its state, and what to do instead.
_REFUSALS = {
    "in_progress": ("is in progress", "Its consumer can release it with a delay."),
    "dead": ("is a dead letter", "Redrive it first."),
    "finished": ("is finished", "Push it again."),
    "cancelled": ("is cancelled", "Push it again."),
}
_MOVED = ("has just changed its state", "Try again.")


def reschedule(
    context: Context,
    id: int,
    delay: Duration | None,
    due: datetime | None,
    priority: int | None,
    now: datetime | None,
    connection: Connection | None,
) -> None:
    if delay is not None and due is not None:
        raise BadInput("Both delay and due are given.", "Give one of them.")
    if delay is None and due is None and priority is None:
        raise BadInput("Nothing is to be changed.", "Give delay, due or priority.")
    if priority is not None:
        check_priority(context.table, priority)
    params: Params = {
        "id": checked_id(id),
        "delay": None if delay is None else seconds(delay, "delay"),
        "due": None if due is None else context.time(due, "due"),
        "priority": priority,
        "now": context.time(now),
    }
    if not context.run(context.messages.reschedule, params, connection):
        raise _refusal(context, id)


def _refusal(context: Context, id: int) -> BadInput:
    message = find(context, id)
    name = context.table.name
    if message is None:
        return BadInput(f"There is no message {id} in {name!r}.", "Give the id of one that waits.")
    if context.table.definition.kind == "subscription" and context.run(context.reads.in_log, {"id": id}):
        return BadInput(
            f"Message {id} of {name!r} is in the log of its topic.", "Only detached messages can be changed."
        )
    why, remedy = _REFUSALS.get(message.state, _MOVED)
    return BadInput(f"Message {id} of {name!r} {why}; it does not wait.", remedy)
