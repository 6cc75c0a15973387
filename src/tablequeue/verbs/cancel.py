"""Cancels messages, and asks whether messages in progress were cancelled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from tablequeue.errors import BadInput
from tablequeue.model.connection import Connection
from tablequeue.model.message import Message
from tablequeue.model.states import STATES
from tablequeue.verbs.after import ENDED, follow
from tablequeue.verbs.context import Context, Params, checked_ids
from tablequeue.verbs.inspect import in_batches

Chosen = int | Iterable[int] | Callable[[Message], bool]
"""The id of a message, several ids, or a predicate of messages."""


@dataclass(frozen=True, slots=True)
class Cancellation:
    """What `cancel` has done. Each given id is in one of the three lists.

    cancelled   the messages that waited, or were dead letters: they have left the queue.
    in_progress         the messages in progress: their consumers see `Claim.cancelled`.
    unknown     ids that no message in the queue has: it is finished or deleted, or never existed.
    """

    cancelled: tuple[int, ...] = ()
    in_progress: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()


def cancel(context: Context, which: Chosen, now: datetime | None, connection: Connection | None) -> Cancellation:
    time = context.time(now)
    account: dict[int, bool] = {}
    asked: list[int] = []
    with context.runner.whole(connection if callable(which) else None, refuses=True):
        for ids in _batches(context, which):
            _refuse_in_log(context, ids)
            params: Params = {"ids": context.engine.dump_ids(ids), "now": time}
            account |= dict(context.run(context.messages.cancel, params, connection))
            asked += ids
    follow(context, ENDED, now, connection, len(account))
    return Cancellation(
        tuple(sorted(id for id, told in account.items() if not told)),
        tuple(sorted(id for id, told in account.items() if told)),
        # A message that a predicate chose existed; it may have been finished since.
        tuple(sorted({*asked}.difference(account))),
    )


def cancelled_in_progress(context: Context, ids: Sequence[int]) -> frozenset[int]:
    """Return the messages in progress that were cancelled. It reads their rows by their ids, and locks none.

    In a subscription, only detached messages can be cancelled; where delivery is at most once, none.
    """
    return frozenset(context.run(context.messages.told, {"ids": context.engine.dump_ids(ids)}) if ids else ())


# -- private -----------------------------------------------------------------------------------------------------------


def _batches(context: Context, which: Chosen) -> Iterator[list[int]]:
    """Return the ids, all at once; or the ids of messages that the predicate chooses, by state, in batches."""
    if not callable(which):
        given = [which] if isinstance(which, int) else which
        if ids := sorted({*checked_ids(given)}):
            yield ids
        return
    # For a subscription, its detached messages. Each is looked at in its current state.
    apart = replace(context, reads=context.engine.reads)
    # Blocked ones first: else a message that becomes the head of its group, because the head was cancelled, would be
    # missed.
    for state in sorted(STATES, key=lambda state: state != "blocked"):
        for batch in in_batches(apart, state):
            if ids := [message.id for message in batch if which(message)]:
                yield ids


def _refuse_in_log(context: Context, ids: Sequence[int]) -> None:
    """Refuse ids of messages that are only in the log: they belong to all subscriptions."""
    if context.table.definition.kind != "subscription":
        return
    for id in ids:
        if context.run(context.reads.in_log, {"id": id}):
            raise BadInput(
                f"Message {id} of {context.table.name!r} is in the log of its topic, and cannot be cancelled.",
                "Only detached messages can be: those that failed, were released, or lost their lease.",
            )
