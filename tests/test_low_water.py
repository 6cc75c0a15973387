"""The low-water mark is only a hint: a message that becomes ready below it is skipped until the next sweep at most."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from tablequeue import ALL, Claim, Queue
from tablequeue.engines.connection import Cursor
from tablequeue.engines.engine import Engine
from tablequeue.engines.table import Table
from tablequeue.ext import context_of
from tablequeue.model.definition import Definition
from tablequeue.verbs.sweep import sweep
from tests.servers import KINDS, Kind, Place
from tests.support import DESIGNS, at, claimed, design_group, ids_of


@pytest.fixture(params=[kind for kind in KINDS if kind.engine_class.low_water], ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    one: Kind = request.param
    return one


def opened(place: Place, engine: type[Engine], **definition: Any) -> Queue:
    """A queue in a process that has just swept, and does not sweep again."""
    queue = place.open_with(engine).create_queue("work", payload="text", **definition)
    context_of(queue).table.next_sweep = inf
    return queue


def given_back_by_another(place: Place, queue: Queue) -> list[int]:
    """Push four messages. Another process releases the first one after `queue` has claimed the second."""
    ids = queue.push_many([*"abcd"])
    theirs = claimed(place.open().queue("work"))
    assert (theirs.id, claimed(queue).id) == (ids[0], ids[1])
    theirs.release()
    return ids


def check_found_when_nothing_else_is(place: Place, engine: type[Engine]) -> None:
    queue = opened(place, engine)
    first, _, third, fourth = given_back_by_another(place, queue)
    assert ids_of([claimed(queue), claimed(queue)]) == [third, fourth], "claims begin at the mark"
    assert ids_of(queue.pop_many(2)) == [first]


def check_found_after_a_sweep(place: Place, engine: type[Engine]) -> None:
    queue = opened(place, engine)
    first, *_ = given_back_by_another(place, queue)
    context_of(queue).table.next_sweep = 0
    assert claimed(queue).id == first


def check_found_after_a_sweep_beside_a_claim(place: Place, engine: type[Engine]) -> None:
    """The claim of another thread began before the sweep and ends after it."""
    meanwhile: list[Callable[[], Any]] = []

    class Slow(engine):  # type: ignore[misc, valid-type]
        def is_ours(self, cursor: Cursor) -> bool:
            while meanwhile:
                meanwhile.pop()()
            committed: bool = super().is_ours(cursor)
            return committed

    queue = opened(place, Slow)
    first, _, third, _ = given_back_by_another(place, queue)
    meanwhile.append(lambda: sweep(context_of(queue), None))
    assert claimed(queue).id == third
    assert claimed(queue).id == first


def check_found_by_a_claim_with_a_time(place: Place, engine: type[Engine]) -> None:
    queue = opened(place, engine)
    first, *_ = given_back_by_another(place, queue)
    assert claimed(queue, now=at(0)).id == first


def check_found_after_a_rollback(place: Place, engine: type[Engine]) -> None:
    queue = opened(place, engine)
    first, second, _ = queue.push_many([*"abc"])
    with place.sa_engine().connect() as connection:
        assert ids_of(queue.pop_many(2, connection=connection)) == [first, second]
        connection.rollback()
    context_of(queue).table.next_sweep = inf
    assert claimed(queue).id == first


def found_at_once(
    give_back: Callable[[Queue, Claim], Any], max_attempts: int = 2
) -> Callable[[Place, type[Engine]], None]:
    def check(place: Place, engine: type[Engine]) -> None:
        queue = opened(place, engine, max_attempts=max_attempts)
        first, second, _ = queue.push_many([*"abc"])
        claim = claimed(queue)
        assert (claim.id, claimed(queue).id) == (first, second)
        give_back(queue, claim)
        assert claimed(queue).id == first

    return check


def redrive_all(queue: Queue, claim: Claim) -> None:
    claim.fail("no")
    assert queue.redrive(ALL) == 1


def redrive_it(queue: Queue, claim: Claim) -> None:
    claim.fail("no")
    assert queue.redrive([claim.id]) == 1


Check = Callable[[Place, type[Engine]], None]
CHECKS: dict[str, Check] = {
    "when nothing else is ready": check_found_when_nothing_else_is,
    "after a sweep": check_found_after_a_sweep,
    "after a sweep beside a claim": check_found_after_a_sweep_beside_a_claim,
    "by a claim with a time": check_found_by_a_claim_with_a_time,
    "after a rollback": check_found_after_a_rollback,
    "at once, released": found_at_once(lambda _, claim: claim.release()),
    "at once, failed": found_at_once(lambda _, claim: claim.fail("no", retry_in=0)),
    "at once, redriven with all": found_at_once(redrive_all, max_attempts=1),
    "at once, redriven alone": found_at_once(redrive_it, max_attempts=1),
}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_a_message_below_the_mark_is_found(place: Place, kind: Kind, check: Check) -> None:
    check(place, kind.engine_class)


@pytest.mark.parametrize("design", DESIGNS)
def test_only_ids_that_come_in_order_have_a_mark(place: Place, design: str) -> None:
    queue = place.open().create_queue("work", payload="text", **DESIGNS[design])
    queue.push("a", **design_group(queue, "g"))
    claimed(queue)
    assert (context_of(queue).table.mark.id > 0) == (design in ("fifo", "heap"))


# -- mutants ------------------------------------------------------------------------------------------------------


def with_table(broken: type[Table]) -> Callable[[type[Engine]], type[Engine]]:
    def mutant(engine: type[Engine]) -> type[Engine]:
        class WithTable(engine):  # type: ignore[misc, valid-type]
            def table(self, name: str, definition: Definition, *place: Any) -> Table:
                return broken(self, name, definition, *place)

        return WithTable

    return mutant


class NeverFalls(Table):
    def ready_after(self, id: int) -> None:
        pass


class OneMark(Table):
    """A mutant that lowers the mark in place, so that a running claim raises it again."""

    def ready_after(self, id: int) -> None:
        self.mark.id = min(self.mark.id, id)


def raised_in_transactions(engine: type[Engine]) -> type[Engine]:
    class RaisedInTransactions(engine):  # type: ignore[misc, valid-type]
        def is_ours(self, cursor: Cursor) -> bool:
            return True

    return RaisedInTransactions


MUTANTS: dict[str, tuple[Callable[[type[Engine]], type[Engine]], str]] = {
    "a mark that never falls, and a sweep": (with_table(NeverFalls), "after a sweep"),
    "a mark that never falls, and a release": (with_table(NeverFalls), "at once, released"),
    "a mark that never falls, and a failure": (with_table(NeverFalls), "at once, failed"),
    "a mark that never falls, and a redrive": (with_table(NeverFalls), "at once, redriven with all"),
    "a mark that claims under way raise again": (with_table(OneMark), "after a sweep beside a claim"),
    "a mark that a rollback leaves": (raised_in_transactions, "after a rollback"),
}


@pytest.mark.parametrize(("mutant", "check"), MUTANTS.values(), ids=MUTANTS)
def test_the_mutant_is_noticed(
    place: Place, kind: Kind, mutant: Callable[[type[Engine]], type[Engine]], check: str
) -> None:
    with pytest.raises(AssertionError):
        CHECKS[check](place, mutant(kind.engine_class))
