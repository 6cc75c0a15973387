"""Sweeps: due, abandoned and late messages become ready for all consumers, despite open transactions and refusals."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from tablequeue import Claim, Queue
from tablequeue.engines.connection import Cursor
from tablequeue.engines.engine import Engine
from tablequeue.engines.params import Params
from tablequeue.engines.table import Table
from tablequeue.errors import LeaseLost, Locked
from tablequeue.ext import context_of
from tablequeue.verbs import claim, sweep
from tests.callers import Caller
from tests.servers import Kind, Place
from tests.support import at, claimed, counts, design_group, ids_of, refuses, with_parts

pytestmark = pytest.mark.quick

MANY = 30


def ago(seconds: float) -> datetime:
    """Return a time this many seconds before a moment that is also past by the database's clock."""
    return at(-seconds).replace(year=2020)


def fill(queue: Queue) -> list[int]:
    """Push messages that were due long ago, and others whose leases ended long ago, each in a group of its own."""
    abandoned = [queue.push("x", **design_group(queue, f"a{n}"), now=ago(2000)) for n in range(MANY)]
    queue.pop_many(MANY, lease=1, now=ago(1000)) if queue.definition.delivery == "at_least_once" else None
    due = [queue.push("y", delay=1, **design_group(queue, f"d{n}"), now=ago(2000)) for n in range(MANY)]
    return abandoned + due


TAKEN: dict[str, Callable[[Queue, Any], Claim | None]] = {
    "take": lambda queue, connection: queue.take(connection),
    "pop": lambda queue, connection: queue.pop(connection=connection),
}


@pytest.mark.parametrize("verb", TAKEN)
def test_an_open_transaction_withholds_its_own_message_only(
    queue: Queue, place: Place, kind: Kind, caller: Caller, verb: str
) -> None:
    if not kind.side_by_side:
        pytest.skip("nobody else can write while a transaction does")
    if queue.definition.strict:
        pytest.skip("one message is in progress at a time")
    ids = fill(queue)
    mine = TAKEN[verb](queue, caller.connection)
    assert mine is not None
    theirs = place.open().queue("work")
    got = [message.id for _ in range(5) for message in theirs.pop_many(MANY)]
    assert sorted([mine.id, *got]) == ids, "all the others"
    caller.commit()


@pytest.mark.parametrize("design", ["fifo"])
def test_the_check_notices_sweeps_in_the_callers_transaction(
    queue: Queue, place: Place, kind: Kind, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not kind.side_by_side:
        pytest.skip("they are part of it there")
    monkeypatch.setattr(context_of(queue).engine, "sweeps_within", True)
    with pytest.raises(AssertionError):
        test_an_open_transaction_withholds_its_own_message_only(queue, place, kind, caller, "take")


# -- refusals ----------------------------------------------------------------------------------------------------------


def refusing(*operations: str) -> Callable[[type[Engine]], type[Engine]]:
    """Return an engine that refuses operations while its attribute `refuses` is true, as if another session held a
    lock."""

    def variant(engine: type[Engine]) -> type[Engine]:
        def refuse(name: str) -> Callable[..., Any]:
            def operation(self: Any, cursor: Cursor, table: Table, params: Params) -> Any:
                if self.refuses and params.get("now") is None:
                    raise Locked("It is locked.", "Try again.")
                return getattr(type(engine.messages), name)(self, cursor, table, params)

            return operation

        methods = {name: refuse(name) for name in operations}
        part: Any = type("Refusing", (type(engine.messages),), {"refuses": False, **methods})
        return with_parts(engine, {"messages": part}, refusals=part)

    return variant


@pytest.fixture
def locked(place: Place, kind: Kind, options: dict[str, Any], request: pytest.FixtureRequest) -> Any:
    """A queue on an engine that can refuse its sweeps, or the operation that the parameter of the test names."""
    engine = refusing(*getattr(request, "param", ("sweep", "promote")))(kind.engine_class)
    queue = place.open_with(engine).create_queue("work", **options)
    queue.refusals = engine.refusals  # type: ignore[attr-defined]
    return queue


def refuse(queue: Any, now: bool = True) -> None:
    queue.refusals.refuses = now


@pytest.mark.needs("plain_push", "many_in_progress")
@pytest.mark.parametrize("due", [False, True], ids=["too few", "a sweep is due"])
def test_what_was_claimed_is_handed_over(locked: Any, due: bool) -> None:
    ids = locked.push_many([*"abc"])
    context_of(locked).table.next_sweep = 0 if due else float("inf")
    refuse(locked)
    assert sorted(ids_of(locked.pop_many(10))) == ids
    context_of(locked).table.next_sweep = float("inf")
    assert refuses(Locked, locked.pop).cause == "It is locked.", "nothing is ready that is known of"
    refuse(locked, False)
    assert locked.pop() is None
    assert counts(locked) == {"in_progress": 3}


@pytest.mark.needs("plain_push")
@pytest.mark.parametrize("locked", [("sweep", "promote"), ("sweep", "promote", "claim")], indirect=True)
@pytest.mark.parametrize("due", [False, True], ids=["too few", "a sweep is due"])
def test_what_was_completed_stays_so(locked: Any, due: bool) -> None:
    """After a refusal the caller would try again, and get the error that the lease is lost."""
    first = locked.push("a")
    locked.push("b")
    message = claimed(locked)
    context_of(locked).table.next_sweep = 0 if due else float("inf")
    refuse(locked)
    try:
        more = locked.pop_many(5, completing=[message])
    except Locked:
        # Nothing was changed.
        refuse(locked, False)
        more = locked.pop_many(5, completing=[message])
    refuse(locked, False)
    assert locked.definition.order == "lifo" or ids_of(locked.history()) == [first]
    assert len(locked.history()) == 1
    assert len(more) + len(locked.pop_many(5)) == 1
    refuses(LeaseLost, message.complete)


@pytest.mark.needs("plain_push", "many_in_progress")
@pytest.mark.parametrize("verb", ["complete_many", "release_many"])
def test_claims_of_several_pops_are_finished_together_or_not_at_all(
    queue: Queue, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.push_many([*"abcd"])
    claims = [*queue.pop_many(2), *queue.pop_many(2)]
    messages, finish = context_of(queue).engine.messages, verb.removesuffix("_many")
    calls = iter([False, True])
    original = getattr(messages, finish)

    def refused_the_second_time(cursor: Cursor, table: Table, params: Params) -> Any:
        result = original(cursor, table, params)
        if next(calls, False):
            raise Locked("It is locked.", "Try again.")
        return result

    monkeypatch.setattr(messages, finish, refused_the_second_time)
    refuses(Locked, getattr(queue, verb), claims)
    assert counts(queue) == {"in_progress": 4}
    getattr(queue, verb)(claims)
    assert counts(queue) == ({"finished": 4} if finish == "complete" else {"ready": 4})


def test_each_lost_claim_is_named_once(queue: Queue) -> None:
    queue.push("x", **design_group(queue, "a"), now=at(0))
    old = claimed(queue, lease=1, now=at(0))
    new = claimed(queue, now=at(1))
    assert refuses(LeaseLost, queue.complete_many, [old, new]).ids == (old.id,)
    assert counts(queue) == {"finished": 1}


# -- how late ----------------------------------------------------------------------------------------------------------


@pytest.mark.needs("plain_push", "many_in_progress")
def test_a_busy_queue_is_swept_at_an_interval_that_nothing_stretches(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of this test makes every claim and every sweep take ten seconds."""
    clock, sweeps = [1000.0], [0]
    for module in (claim, sweep):
        monkeypatch.setattr(module, "monotonic", lambda: clock[0])
    engine, original = context_of(queue).engine, context_of(queue).engine.messages.sweep

    def slow(cursor: Cursor, table: Table, params: Params) -> int:
        clock[0] += 10
        sweeps[0] += 1
        return original(cursor, table, params)

    monkeypatch.setattr(engine.messages, "sweep", slow)
    queue.push_many(["x"] * 10)
    for _ in range(10):
        claimed(queue)
        clock[0] += sweep.SWEEP_EVERY
    assert sweeps[0] == 10, "before each of them"


@pytest.mark.needs("plain_push")
def test_more_than_one_sweep_makes_ready_is_swept_at_once(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "SWEEP_SIZE", 2)
    ids = [queue.push("x", delay=1, now=ago(0)) for _ in range(6)]
    seen = []
    for _ in ids:
        message = claimed(queue)
        seen.append(message.id)
        message.complete()
    assert sorted(seen) == ids
