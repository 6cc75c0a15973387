"""Small things that many tests share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any, TypeVar

import pytest

from tablequeue import Claim, Consumer, Database, LeaseLost, Message, Queue
from tablequeue.engines.engine import Engine
from tablequeue.ext import context_of
from tablequeue.model.states import STATES

AnyConsumer = TypeVar("AnyConsumer", bound=Consumer)

START = datetime(2040, 1, 1, tzinfo=UTC)


# The possible orders of a definition, each with a physical design of its own.
DESIGNS: dict[str, dict[str, Any]] = {
    "fifo": {},
    "heap": {"order": "heap"},
    "lifo": {"order": "lifo"},
    "due": {"order": "due"},
    "priority": {"order": "priority"},
    "strict": {"strict": True},
    "groups": {"groups": True},
    "fair": {"groups": "fair"},
}


# Designs that have the texts of another one, but for what depends on the order: tests/test_grid.py.
ALIKE = {"heap": "fifo", "lifo": "fifo", "priority": "fifo", "strict": "groups"}


# Capabilities of a design that tests may need. The tests of the conformance suite name them with `needs`.
CAPABILITIES: dict[str, frozenset[str]] = {
    # Several messages pushed in the same way can be in progress at once.
    "many_in_progress": frozenset(DESIGNS) - {"strict", "groups"},
    # A push need not name a group.
    "plain_push": frozenset(DESIGNS) - {"groups"},
}


def designs_with(needed: Iterable[str]) -> list[str]:
    """Return the designs with all of these capabilities."""
    return [design for design in DESIGNS if all(design in CAPABILITIES[name] for name in needed)]


def idle(opened: Any) -> Any:
    """Return the handle of a queue, a topic or a batch as it is when this process has not used it for an hour."""
    context = opened._context
    context.looked = context.next_look = context.looked - 3600
    return opened


def looked(opened: Any) -> Any:
    """Return the handle of a queue, a topic or a batch as it is when it has just read its definition, for an hour.

    So that its calls send the same statements, however slow the machine is.
    """
    context = opened._context
    context.next_look = context.looked + 3600
    return opened


def design_group(queue: Queue, group: str) -> dict[str, Any]:
    """Return the option of push that names the group, if the queue has groups."""
    return {"group": group} if queue.definition.groups else {}


def at(seconds: float) -> datetime:
    """Return a moment on the clock of the tests, to pass as `now=`. The database's clock is far before it."""
    return START + timedelta(seconds=seconds)


def claimed(queue: Consumer, **options: Any) -> Claim:
    """Pop the next message, which must exist."""
    claim = queue.pop(**options)
    assert claim is not None, "a message must be ready"
    return claim


def found(queue: Consumer, id: int) -> Message:
    message = queue.find(id)
    assert message is not None, f"message {id} must be live"
    assert message.state != "finished", f"message {id} must be live"
    return message


def at_once(queue: AnyConsumer) -> AnyConsumer:
    """Return the queue as if between two sweeps, so that calls that can be one transaction are one."""
    context_of(queue).table.next_sweep = math.inf
    return queue


def idle_for_long(database: Database) -> None:
    """Make the idle connections look as if the last call on them was an hour ago."""
    for raw in database._runner.pool._idle:
        raw.used_at -= 3600


def complete_all(queue: Queue, done: Event) -> list[int]:
    """Complete messages until `done` is set and none is left. Return them."""
    completed: list[int] = []
    last = False
    while not last:
        last = done.is_set()
        for message in queue.consume(wait=0 if last else 0.05):
            message.complete()
            completed.append(message.id)
    return completed


def ids_of(messages: Iterable[Claim | Message]) -> list[int]:
    return [message.id for message in messages]


def counts(queue: Consumer, **options: Any) -> dict[str, int]:
    """Return the number of messages in each state, without zeros."""
    stats = queue.stats(**options)
    states = {name: getattr(stats, name) for name in (*STATES, "finished")}
    return {name: count for name, count in states.items() if count}


def snapshot(queue: Consumer) -> list[Message]:
    """Return every message of the queue as it is stored, including finished ones."""
    live = [message for state in STATES for message in queue.peek(1_000_000, state=state)]
    return live + (queue.history(1_000_000) if queue.definition.keeps_history else [])


# Every verb that acts on a claim.
FINISHING: dict[str, Callable[[Claim], Any]] = {
    "complete": lambda claim: claim.complete(),
    "fail": lambda claim: claim.fail("why"),
    "fail_at_once": lambda claim: claim.fail("why", retry_in=0),
    "release": lambda claim: claim.release(),
    "extend": lambda claim: claim.extend(60),
}


def check_fenced(queue: Consumer, claim: Claim) -> None:
    """Check that a claim that is no longer held changes nothing by any verb."""
    before = snapshot(queue)
    for verb, finish in FINISHING.items():
        refusal = _lease_lost(finish, claim)
        assert refusal is not None, f"{verb} acted under a claim that was lost"
        assert refusal.ids == (claim.id,), verb
        assert snapshot(queue) == before, f"{verb} changed something"


def _lease_lost(finish: Callable[[Claim], Any], claim: Claim) -> LeaseLost | None:
    try:
        finish(claim)
    except LeaseLost as error:
        return error
    return None


def refuses(kind: type[Exception], call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Return the error that the call raises. It must have this class, a cause and a remedy."""
    with pytest.raises(kind) as caught:
        call(*args, **options)
    error: Any = caught.value
    assert error.cause.strip(), "an error says its cause"
    assert error.remedy.strip(), "an error says its remedy"
    return error


def rewritten(engine: type[Engine], **texts: Callable[[str], str]) -> type[Engine]:
    """Return the engine with changed SQL in some operations, for example a threshold that a test can reach."""

    class Rewritten(engine):  # type: ignore[misc, valid-type]
        def render(self, operation: str, *args: Any, **options: Any) -> str:
            text: str = super().render(operation, *args, **options)
            whole, part, _ = operation.partition(".")
            if whole not in texts:
                return text
            changed = texts[whole](text)
            assert part or changed != text, "there is nothing to rewrite"
            return changed

    return Rewritten


def with_parts(engine: type[Engine], parts: Mapping[str, type[Any]], **attributes: Any) -> type[Engine]:
    """The engine with its parts of these names of other classes, and with other attributes."""
    for name, part_class in parts.items():
        part = copy(getattr(engine, name))
        assert issubclass(part_class, type(part)), "it would have none of the engine's own"
        part.__class__ = part_class
        attributes[name] = part
    return type(engine.__name__, (engine,), attributes)
