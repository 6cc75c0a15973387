"""Broken twins of the engines: each breaks one promise, and the check of that promise must notice."""

from __future__ import annotations

import re
from collections.abc import Callable
from threading import Barrier
from typing import Any, ClassVar

import pytest

from tablequeue import Database
from tablequeue.definition import Definition
from tablequeue.engines.base import Engine
from tests import checks
from tests.servers import Kind, Place


def naive_claim(engine: type[Engine]) -> type[Engine]:
    """Selects, and then updates what it selected: two consumers that meet in between get the same message."""
    meet = Barrier(2, timeout=60)

    class NaiveClaim(engine):  # type: ignore[misc, valid-type]
        alone = engine.alone | {"claim"}

        def claim(self, cursor: Any, table: Any, params: dict[str, Any]) -> list[Any]:
            update, _, subquery = table.statement("claim").partition("where id ")
            queue = self.words(table.name, table.definition, "ready")["queue"]
            cursor.execute(f"select id from {queue} where state = 'ready' limit 1")  # noqa: S608 (a checked name)
            (id,) = cursor.fetchone()
            meet.wait()
            cursor.execute(f"{update} where id = {id} {subquery[subquery.rindex('returning') :]}", params)
            rows: list[Any] = cursor.fetchall()
            return rows

    return NaiveClaim


def rewritten(pattern: str, replacement: str, *operations: str) -> Callable[[type[Engine]], type[Engine]]:
    """A twin with something else in the texts of some operations."""

    def twin(engine: type[Engine]) -> type[Engine]:
        class Rewritten(engine):  # type: ignore[misc, valid-type]
            def render(self, operation: str, name: str, definition: Definition, state: str = "ready") -> str:
                text: str = super().render(operation, name, definition, state)
                if operation not in operations:
                    return text
                broken, times = re.subn(pattern, replacement, text)
                assert times, "the twin is no twin: its text is the engine's own"
                return broken

        return Rewritten

    return twin


TOKEN = r"and token = (cast\(:token as uuid\)|:token)"


def counted_at_failure(engine: type[Engine]) -> type[Engine]:
    """Counts an attempt when the consumer says that it failed: a dead consumer says nothing."""
    uncounted = rewritten(r"attempts = attempts \+ 1,", "", "claim")(engine)
    return rewritten(r"set state", "set attempts = attempts + 1, state", "fail")(uncounted)


def last_in_first_out(engine: type[Engine]) -> type[Engine]:
    """Gives the newest message first."""

    class LastInFirstOut(engine):  # type: ignore[misc, valid-type]
        order_by: ClassVar = {**engine.order_by, "fifo": "id desc"}

    return LastInFirstOut


def check_claims(database: Database) -> None:
    queue = database.create_queue("work", payload="text")
    checks.check_one_claim_one_consumer([queue, database.queue("work")])


def check_fence(database: Database) -> None:
    queue = database.create_queue("work", payload="text")
    checks.check_fence_after_reclaim(queue, database.queue("work"))


def check_poison(database: Database) -> None:
    checks.check_poison_is_counted_at_claim(database.create_queue("work", payload="text", max_attempts=3))


def check_order(database: Database) -> None:
    checks.check_order(database.create_queue("work", payload="text"), seed=1)


def check_order_of_a_heap(database: Database) -> None:
    checks.check_order(database.create_queue("work", payload="text", order="heap"), seed=1)


Twin = Callable[[type[Engine]], type[Engine]]
Check = Callable[[Database], None]

TWINS: dict[str, tuple[Twin, Check]] = {
    "a claim that selects, then updates": (naive_claim, check_claims),
    "a complete without the token": (rewritten(TOKEN, "", "complete_keep"), check_fence),
    "a fail without the token": (rewritten(TOKEN, "", "fail"), check_fence),
    "a release without the token": (rewritten(TOKEN, "", "release"), check_fence),
    "an extend without the token": (rewritten(TOKEN, "", "extend"), check_fence),
    "an attempt counted at its failure": (counted_at_failure, check_poison),
    "a sweep that buries nothing": (rewritten(">= :max_attempts", "> 1000000 + :max_attempts", "sweep"), check_poison),
    "a stack for a fifo": (last_in_first_out, check_order),
    "a claim of messages that are scheduled": (
        rewritten("state = 'ready'", "state in ('ready', 'scheduled')", "claim"),
        check_order_of_a_heap,
    ),
    "a claim of fewer than there are": (rewritten("limit :n", "limit 1", "claim"), check_order_of_a_heap),
}
CHECKS = {check.__name__: check for _, check in TWINS.values()}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_the_engine_passes(place: Place, kind: Kind, check: Check) -> None:
    check(place.open_with(kind.engine_class))


@pytest.mark.parametrize(("twin", "check"), TWINS.values(), ids=TWINS)
def test_the_twin_is_noticed(place: Place, kind: Kind, twin: Twin, check: Check) -> None:
    database = place.open_with(twin(kind.engine_class))
    with pytest.raises(AssertionError) as caught:
        check(database)
    assert "no twin" not in str(caught.value)
