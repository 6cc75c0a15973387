"""The rules by which completions end a batch (ADR 70), in every order of their steps: a model, not the SQL.

A message is waiting, in progress, being removed by an open transaction, or gone. A look sees what has committed: a
message that another open transaction removes still looks as it did before. A transaction that has looked commits or
rolls back, at any time; a message whose removal was rolled back is removed again later, with a new look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, TypeVar

import pytest

pytestmark = pytest.mark.quick

Phase = Literal["waiting", "in progress", "completing", "withdrawing", "gone"]
T = TypeVar("T")
Marks = Callable[[Phase, list[Phase]], bool]
"""Whether a removal leaves a mark: of a message in this phase, beside others in these."""

ROLLBACKS = 1
"""How often the removal of a message is rolled back. A crash of the consumer is a rollback, too."""


def near_the_end(phase: Phase, others: list[Phase]) -> bool:
    """The rule: a withdrawal marks always, a completion if all others look as if they were in progress."""
    return phase == "waiting" or all(other in ("in progress", "completing") for other in others)


def completions_alone(phase: Phase, others: list[Phase]) -> bool:
    return phase != "waiting" and near_the_end(phase, others)


def the_last_alone(phase: Phase, others: list[Phase]) -> bool:
    return phase == "waiting" or not others


class Batch(NamedTuple):
    phases: tuple[Phase, ...]
    marking: tuple[bool, ...]
    rollbacks: tuple[int, ...]
    marked: bool
    callbacks: int


def changed(row: tuple[T, ...], place: int, value: T) -> tuple[T, ...]:
    return (*row[:place], value, *row[place + 1 :])


def steps(batch: Batch, marks: Marks) -> Iterator[tuple[str, Batch]]:
    for n, phase in enumerate(batch.phases):
        others: list[Phase] = [other for m, other in enumerate(batch.phases) if m != n and other != "gone"]

        def become(new: Phase, marking: bool = False, n: int = n) -> Batch:
            return batch._replace(phases=changed(batch.phases, n, new), marking=changed(batch.marking, n, marking))

        if phase == "waiting":
            yield f"claim {n}", become("in progress")
            yield f"withdraw {n}", become("withdrawing", marks(phase, others))
        if phase == "in progress":
            yield f"complete {n}", become("completing", marks(phase, others))
            if batch.rollbacks[n]:
                yield f"fail {n}", become("waiting")._replace(rollbacks=changed(batch.rollbacks, n, 0))
        if phase in ("completing", "withdrawing"):
            yield f"commit {n}", become("gone")._replace(marked=batch.marked or batch.marking[n])
            if batch.rollbacks[n]:
                back: Phase = "in progress" if phase == "completing" else "waiting"
                rollbacks = changed(batch.rollbacks, n, batch.rollbacks[n] - 1)
                yield f"roll back {n}", become(back)._replace(rollbacks=rollbacks)
    if batch.marked and not batch.callbacks and set(batch.phases) == {"gone"}:
        yield "sweep", batch._replace(callbacks=1)


def fault(messages: int, marks: Marks) -> tuple[str, ...] | None:
    """The steps after which a batch never ends, or None."""
    waiting: Phase = "waiting"
    start = Batch((waiting,) * messages, (False,) * messages, (ROLLBACKS,) * messages, False, 0)
    seen = {start}
    stack: list[tuple[Batch, tuple[str, ...]]] = [(start, ())]
    while stack:
        batch, path = stack.pop()
        following = list(steps(batch, marks))
        if not following and batch.callbacks != 1:
            return path
        for name, after in following:
            if after not in seen:
                seen.add(after)
                stack.append((after, (*path, name)))
    return None


@pytest.mark.parametrize("messages", [1, 2, 3, 4])
def test_a_batch_ends_in_every_order_of_completions_withdrawals_and_rollbacks(messages: int) -> None:
    assert fault(messages, near_the_end) is None


def test_a_withdrawal_without_a_mark_is_found() -> None:
    assert fault(1, completions_alone)


def test_a_mark_by_the_last_alone_is_found() -> None:
    assert fault(2, the_last_alone)
