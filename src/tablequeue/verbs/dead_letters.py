"""Dead letters in another queue: which queues may take them, and how they come back. See docs/adr/0045-*."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from tablequeue.engines.rows import NameRow
from tablequeue.engines.table import Table
from tablequeue.errors import BadDefinition, BadInput
from tablequeue.model.definition import Definition
from tablequeue.model.message import Message
from tablequeue.model.origin import Origin
from tablequeue.model.states import LiveState
from tablequeue.verbs.context import Context
from tablequeue.verbs.inspect import in_batches

# The states in which a message waits in the queue for dead letters, or is a dead letter of that queue too. Blocked ones
# are read first, so that one that changes its state meanwhile is still read.
MOVABLE: tuple[LiveState, ...] = ("blocked", "scheduled", "ready", "dead")


def check(name: str, definition: Definition, there: Table | None) -> None:
    """Refuse a definition if its queue for dead letters, `there`, cannot take them."""
    target = definition.dead_letter_to
    if there is None:
        raise BadDefinition(f"There is no queue {target!r} for dead letters.", "Create it first with create_queue().")
    theirs = there.definition
    reasons = {
        f"{target!r} is a {theirs.kind}.": theirs.kind != "queue",
        "A queue cannot send its dead letters to itself.": target == name,
        f"The payload of {target!r} is {theirs.payload}, and {name!r} has {definition.payload}.": (
            theirs.payload != definition.payload
        ),
        f"In {target!r} one dead letter would wait for another: it is strict, or has groups.": (
            theirs.grouped and (theirs.strict, theirs.groups) != (definition.strict, definition.groups)
        ),
    }
    for cause, holds in reasons.items():
        if holds:
            raise BadDefinition(
                cause,
                "Name a queue with the same payload; if this queue is not strict and has no groups, one without both.",
            )


def check_altered(name: str, definition: Definition, there: Table | None, rows: Sequence[NameRow]) -> None:
    """Refuse a new `dead_letter_to` of an existing queue if it cannot work; `rows` is the catalogue."""
    check(name, definition, there)
    targets = {row.name: json.loads(row.entry).get("dead_letter_to") for row in rows} | {
        name: definition.dead_letter_to
    }
    way = [name]
    while (target := targets.get(way[-1])) is not None:
        if target == name:
            raise BadDefinition(
                f"The dead letters of {name!r} would come back to it, by {' and '.join(map(repr, way[1:]))}.",
                "Name a queue outside of this circle, or None.",
            )
        way.append(target)


def sources(rows: Sequence[NameRow], name: str | None) -> list[str]:
    """Return the queues that send their dead letters to the one of that name; `rows` is the catalogue.

    The name None, of a dropped queue, has no such queues.
    """
    return [row.name for row in rows if name is not None and json.loads(row.entry).get("dead_letter_to") == name]


def refuse_drop(name: str | None, rows: Sequence[NameRow]) -> None:
    """Refuse to drop a queue to which other queues send their dead letters."""
    if theirs := sources(rows, name):
        raise BadInput(f"The queue {theirs[0]!r} sends its dead letters to {name!r}.", f"Drop {theirs[0]!r} first.")


def move_back(source: Context, target: Context, chosen: Callable[[Message, Origin], bool]) -> int:
    """Move dead letters of `source` back from `target`, if `chosen` is true for them. Return how many."""
    total, table = 0, source.table
    # In the order of their ids, whatever their states: both queues may be strict, or have groups.
    for batch in in_batches(target, *MOVABLE):
        origins = {message.id: (message, Origin.of(message.headers)) for message in batch}
        keys = {
            id: origin.key
            for id, (message, origin) in origins.items()
            if origin is not None and origin.table == table.table_name and chosen(message, origin)
        }
        if keys:
            ids = target.engine.dump_ids([*keys])
            total += len(source.run(source.messages.move_back, {"ids": ids, "keys": keys}))
    return total
