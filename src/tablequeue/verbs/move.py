"""Move messages that no consumer holds from one queue to another; `move_between` does it between two databases."""

from __future__ import annotations

import secrets
from collections.abc import Generator, Mapping, Sequence
from datetime import datetime
from typing import Any

from tablequeue.engines.params import Params
from tablequeue.engines.table import Table
from tablequeue.errors import BadInput, DuplicateKey
from tablequeue.model.states import WAITING_STATES, LiveState
from tablequeue.verbs import keys, move_between
from tablequeue.verbs.after import CHANGED, follow
from tablequeue.verbs.context import Context, checked_ids
from tablequeue.verbs.dependency_ends import awaited
from tablequeue.verbs.inspect import find, in_batches
from tablequeue.verbs.maintain import ALL, Which
from tablequeue.verbs.refusals import first_of

MOVED: tuple[LiveState, ...] = (*WAITING_STATES, "dead")
"""The states of messages that no consumer holds."""


class _KeysTaken(Exception):
    """Messages of the other queue have the same keys; the transaction is rolled back."""


def move(context: Context, to: Context, which: Which, state: LiveState | None, now: datetime | None) -> dict[int, int]:
    """Move messages to another queue. Return their old ids with the new ones."""
    _check(context, to, state)
    if context.runner is not to.runner:
        if which is not ALL or state is not None:
            raise BadInput(
                "Ids, a function or a state are given, and the queues were opened by two databases.",
                "Leave them out: between databases a whole queue is moved; or open both with one tablequeue.Database.",
            )
        return {
            id: new for batch in move_between.batches(context, to, False, False, now) for id, new in batch.ids.items()
        }
    if which is not ALL and not callable(which) and state is not None:
        raise BadInput("Both ids and a state are given.", "Give one of them.")
    context.time(now)  # raises before anything is changed
    target = to.engine.table(to.table.name, to.table.definition, to.table.table_name)
    target.source = context.table
    if which is not ALL and not callable(which):
        ids = checked_ids(which)
        own = _keys(context, ids) if to.table.definition.unique_for else {}
        return _move(context, to, target, ids, own, now, whole=True)
    moved: dict[int, int] = {}
    for batch in in_batches(context, *(MOVED if state is None else (state,))):
        chosen = [message for message in batch if which is ALL or which(message)]
        own = {message.id: message.key for message in chosen if message.key is not None}
        moved |= _move(context, to, target, [message.id for message in chosen], own, now, before=len(moved))
    return moved


def move_batches(
    context: Context, to: Context, history: bool, follow: bool, now: datetime | None
) -> Generator[move_between.Moved]:
    """Move all messages to a queue of another database. Yield what each batch has moved."""
    _check(context.current(), to.current(), None)
    if context.runner is to.runner:
        raise BadInput("Both queues are of one database.", "Use move().")
    return move_between.batches(context, to, history, follow, now)


def _move(
    context: Context,
    to: Context,
    target: Table,
    ids: Sequence[int],
    own: Mapping[int, str],
    now: datetime | None,
    *,
    whole: bool = False,
    before: int = 0,
) -> dict[int, int]:
    """Move messages in one transaction; with `whole`, move all of them or none.

    own   the keys of the messages, by their ids, if the other queue has `unique_for`.
    """

    def run(cursor: Any, target: Table, params: Params) -> dict[int, int]:
        wanted = sorted(own.values()) if target.definition.unique_for else []
        taken = keys.take(to, cursor, target, params, wanted)
        old, new = to.messages.move(cursor, target, params)
        if whole and (rest := sorted({*ids} - {*old})):
            raise BadInput(
                f"{context.table.name!r} has no such messages that wait, or a consumer holds them: "
                f"{', '.join(map(str, rest))}; nothing was moved.",
                "Leave these ids out; or move them when they are released, failed or redriven.",
            )
        if len(new) < len(old):
            raise _KeysTaken
        moved = dict(zip(old, new, strict=True))
        if taken:
            keys.name(to, cursor, target, params, {key: moved.get(id) for id, key in own.items() if key in taken})
        return moved

    if not ids:
        return {}
    params: Params = {"ids": context.engine.dump_ids(ids), "token": secrets.token_hex(16), "now": context.time(now)}
    while True:
        try:
            moved = context.runner.run(run, target, params)
            break
        except _KeysTaken:
            if (refusal := _taken(context, to, ids, before)) is not None:
                raise refusal from None
            # The message with the key was finished since: move again.
    if moved:
        to.table.ready_after(min(moved.values()) - 1)
    for each in (context, to):
        follow(each, CHANGED, now, None, len(moved))
    return moved


def _check(context: Context, to: Context, state: LiveState | None) -> None:
    name, other = context.table.name, to.table.name
    mine, theirs = context.table.definition, to.table.definition
    for each in (context, to):
        if each.table.definition.kind != "queue":
            raise BadInput(
                f"{each.table.name!r} is a {each.table.definition.kind}; messages are moved between queues.",
                "Name two queues.",
            )
    if context.runner is to.runner and context.table.table_name == to.table.table_name:
        raise BadInput(f"{name!r} is both queues.", "Name another queue to move the messages to.")
    if mine.batches:
        raise BadInput(
            f"The queue {name!r} has batches, whose messages stay with it.", "Have them finished there; or cancel them."
        )
    if mine.payload != theirs.payload:
        raise BadInput(
            f"The payloads of {name!r} are {mine.payload}, and {other!r} has {theirs.payload}.",
            "Move them to a queue with the same payload type.",
        )
    if mine.groups != theirs.groups:
        has, lacks = (name, other) if mine.groups else (other, name)
        raise BadInput(
            f"The queue {has!r} has groups, and {lacks!r} has none.",
            "Move them between two queues with groups, or between two without.",
        )
    if state is not None and state not in MOVED:
        raise BadInput(f"state is {state!r}.", f"Give one of: {', '.join(MOVED)}.")
    if mine.dependencies:
        raise BadInput(
            f"Messages of {name!r} may wait for others, by their ids.", "Have them finished there; or cancel them."
        )
    if context.run(awaited, {}):
        raise BadInput(
            f"Messages wait for messages of {name!r}, and would count the moved ones as finished.",
            "Move them when none waits.",
        )


def _keys(context: Context, ids: Sequence[int]) -> dict[int, str]:
    """Return the ids of the messages that have keys, each with its key."""
    found = (find(context, id) for id in ids)
    return {message.id: message.key for message in found if message is not None and message.key is not None}


def _taken(context: Context, to: Context, ids: Sequence[int], before: int) -> DuplicateKey | None:
    """Return the error with the keys that messages of the other queue have too; None if they no longer have any."""
    own = [*_keys(context, ids).values()]
    there = to.run(to.messages.find_keys, {"keys": own})
    taken = [key for key in own if key in there]
    if not taken:
        return None
    done = f"{before} messages were moved before" if before else "nothing was moved"
    return DuplicateKey(
        f"Messages of {to.table.name!r} have keys of messages to move: {first_of(taken, repr)}; {done}.",
        "Finish or purge the messages of one of the queues first; or move the others, by their ids.",
        taken,
    )
