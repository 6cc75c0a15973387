"""Maintenance: empty queues and histories, and redrive dead letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import Enum
from typing import Final, Literal

from tablequeue.engines.dependencies import FAR
from tablequeue.engines.params import Params
from tablequeue.engines.table import Table
from tablequeue.model.message import Message
from tablequeue.model.pacing import Duration
from tablequeue.verbs import catalogue, dead_letters
from tablequeue.verbs.after import CHANGED, PURGED, follow
from tablequeue.verbs.context import Context, checked_ids, seconds
from tablequeue.verbs.inspect import BATCH, in_batches, need_history


class All(Enum):
    """The type of `ALL`."""

    ALL = "all"


ALL: Final = All.ALL
"""All messages, for verbs that need a choice: a forgotten or empty argument never means all."""

Which = Sequence[int] | Callable[[Message], bool] | Literal[All.ALL]
"""Messages, such as dead letters: by their ids, by a predicate, or all."""


def purge(context: Context, states: Sequence[str]) -> int:
    """Delete every message in `states`, in bounded batches; return how many."""
    total = 0
    for state in states:
        deleted = BATCH
        while deleted:
            deleted = context.run(context.messages.purge, {"state": state, "n": BATCH})
            total += deleted
    follow(context, PURGED, None, None, total)
    return total


def purge_dead(context: Context, which: Which) -> int:
    """Delete dead letters; return how many."""
    if which is ALL:
        return purge(context, ["dead"])

    def delete(ids: Sequence[int]) -> int:
        params: Params = {"state": "dead", "ids": context.engine.dump_ids(ids)}
        return context.run(context.messages.purge_ids, params)

    deleted = _each_dead(context, which, delete)
    follow(context, PURGED, None, None, deleted)
    return deleted


def purge_history(context: Context, older_than: Duration, now: datetime | None) -> int:
    """Delete messages that left the queue `older_than` ago or earlier, in bounded batches; return how many."""
    need_history(context)
    params: Params = {"age": seconds(older_than, "older_than"), "n": BATCH, "now": context.time(now)}
    total, deleted = 0, BATCH
    while deleted:
        deleted = context.run(context.messages.purge_history, params)
        total += deleted
    if context.table.definition.batches:
        while context.run(context.engine.batches.forget_batches, params):
            pass
    return total


def redrive(context: Context, which: Which, now: datetime | None) -> int:
    """Make dead letters ready again, with all their attempts again; return how many."""
    context.time(now)  # raises before anything is changed
    total = _redrive_elsewhere(context, which, now)

    def revive(ids: Sequence[int]) -> int:
        return len(context.run(context.messages.redrive_ids, _far(context) | {"ids": context.engine.dump_ids(ids)}))

    here = _each_dead(context, which, revive) if which is not ALL else _redrive_all(context)
    follow(context, CHANGED, now, None, here)
    return total + here


def _redrive_elsewhere(context: Context, which: Which, now: datetime | None) -> int:
    """Move dead letters back: from another queue to this one, or from this queue to the queues they came from; return
    how many."""
    if context.table.definition.kind != "queue":
        return 0

    def at(table: Table) -> Context:
        return Context.at(context.runner, table, context.who)

    def chosen(message: Message, id: int) -> bool:
        return which is ALL or (which(message) if callable(which) else id in ids)

    ids = () if which is ALL or callable(which) else {*checked_ids(which)}
    total = 0
    if context.table.dead_letters is not None:
        target = at(context.table.dead_letters)
        total = dead_letters.move_back(context, target, lambda message, origin: chosen(message, origin.id))
        follow(context, CHANGED, now, None, total)
    there = context.run(context.engine.catalogue.names, {})
    for name in dead_letters.sources(there, catalogue.name_in(there, context.table.table_name)):
        source = at(catalogue.find(context.runner, name, "queue"))
        moved = dead_letters.move_back(source, context, lambda message, origin: chosen(message, message.id))
        follow(source, CHANGED, now, None, moved)
        total += moved
    return total


def _far(context: Context) -> Params:
    """Return when a dead letter is due that still waits for other messages."""
    return {"due": context.time(FAR, "due")}


def _redrive_all(context: Context) -> int:
    total, after = 0, 0
    while batch := context.run(context.messages.redrive, _far(context) | {"after": after, "n": BATCH}):
        # By ascending ids: a message that dies again meanwhile is not redriven for ever.
        total, after = total + len(batch), batch[-1]
    return total


def _each_dead(
    context: Context, which: Sequence[int] | Callable[[Message], bool], do: Callable[[Sequence[int]], int]
) -> int:
    """Call `do` for the dead letters with these ids, or that the predicate chooses; return how many."""
    if not callable(which):
        return do(checked_ids(which))
    chosen = ([message.id for message in batch if which(message)] for batch in in_batches(context, "dead"))
    return sum(do(ids) for ids in chosen if ids)
