"""The rules by which a batch ends (ADR 70), in every order of their steps: a model, not the SQL.

A message is waiting, in progress, being removed by an open transaction, or gone. The last one is added by a handler,
whose transaction is open for a while. A look sees what has committed: a message that an open transaction removes is
still there, and one that it adds is not. An open transaction commits or rolls back, at any time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeVar

import pytest

pytestmark = pytest.mark.quick

Phase = Literal["waiting", "in progress", "leaving", "gone", "absent", "arriving"]
Ender = Literal["idle", "locked", "ending", "done"]
T = TypeVar("T")
SEEN = ("waiting", "in progress", "leaving")


class Rules(NamedTuple):
    """What is built; each of them can be broken."""

    sweeps: bool = True
    """Whether sweeps look at open batches; else only completions do that were alone."""
    locks: bool = True
    """Whether who ends a batch locks its row, and passes over one that is locked or has ended."""
    holds: bool = True
    """Whether an addition locks the message of its handler, so that no completion of that commits before it."""


class Batch(NamedTuple):
    phases: tuple[Phase, ...]
    came: tuple[Phase, ...]
    """What each message that is leaving was before."""
    alone: tuple[bool, ...]
    """Whether the removal of a message saw no other one."""
    enders: tuple[Ender, ...] = ("idle", "idle")
    under: int = -1
    """The message under which an open transaction adds the last one."""
    told: bool = False
    rollbacks: int = 1
    ended: bool = False
    callbacks: int = 0


def changed(row: tuple[T, ...], place: int, value: T) -> tuple[T, ...]:
    return (*row[:place], value, *row[place + 1 :])


def steps(batch: Batch, rules: Rules) -> Iterator[tuple[str, Batch]]:
    """Yield each step that may come next, with what is there after it."""
    left = batch.rollbacks - 1
    for n, phase in enumerate(batch.phases):
        others = any(other in SEEN for m, other in enumerate(batch.phases) if m != n)

        def become(new: Phase, n: int = n) -> Batch:
            return batch._replace(phases=changed(batch.phases, n, new))

        if phase == "waiting":
            yield f"claim {n}", become("in progress")
        if phase in ("waiting", "in progress") and not (rules.holds and batch.under == n):
            leaving = become("leaving")
            yield (
                f"remove {n}",
                leaving._replace(came=changed(batch.came, n, phase), alone=changed(batch.alone, n, not others)),
            )
        if phase == "in progress" and batch.phases[-1] == "absent":
            yield (
                f"add under {n}",
                batch._replace(phases=changed(batch.phases, -1 % len(batch.phases), "arriving"), under=n),
            )
        if phase == "leaving":
            yield f"commit {n}", become("gone")._replace(told=batch.told or batch.alone[n])
            if batch.rollbacks:
                yield f"roll back {n}", become(batch.came[n])._replace(rollbacks=left)
        if phase == "arriving":
            yield f"commit {n}", become("waiting")._replace(under=-1)
            if batch.rollbacks:
                yield f"roll back {n}", become("absent")._replace(under=-1, rollbacks=left)
    seen = any(phase in SEEN for phase in batch.phases)
    for n, ender in enumerate(batch.enders):

        def turn(new: Ender, n: int = n) -> Batch:
            return batch._replace(enders=changed(batch.enders, n, new))

        held = any(other in ("locked", "ending") for m, other in enumerate(batch.enders) if m != n)
        looked = not seen and not batch.ended and (rules.sweeps or batch.told)
        if ender == "idle" and looked and not (rules.locks and held):
            yield f"{n} locks", turn("locked")
        if ender == "locked":
            yield f"{n} looks", turn("done" if seen or batch.ended else "ending")
        if ender == "ending":
            yield f"{n} ends", turn("done")._replace(ended=True, callbacks=batch.callbacks + 1)
            if batch.rollbacks:
                yield f"{n} dies", turn("idle")._replace(rollbacks=left)


def fault(messages: int, rules: Rules) -> tuple[str, ...] | None:
    """Return the steps after which a batch never ends, ends twice, or ends before its last message; else None."""
    waiting: list[Phase] = ["waiting"] * messages
    phases: tuple[Phase, ...] = (*waiting, "absent")
    start = Batch(phases, phases, (False,) * len(phases))
    seen = {start}
    stack: list[tuple[Batch, tuple[str, ...]]] = [(start, ())]
    while stack:
        batch, path = stack.pop()
        following = list(steps(batch, rules))
        early = batch.ended and not {*batch.phases} <= {"gone", "absent"}
        if early or batch.callbacks > 1 or (not following and batch.callbacks != 1):
            return path
        for name, after in following:
            if after not in seen:
                seen.add(after)
                stack.append((after, (*path, name)))
    return None


@pytest.mark.parametrize("messages", [1, 2, 3])
def test_a_batch_ends_once_in_every_order_of_steps(messages: int) -> None:
    assert fault(messages, Rules()) is None


def test_without_sweeps_a_batch_may_never_end() -> None:
    """The last two completions overlap, and each sees the message of the other one."""
    assert fault(2, Rules(sweeps=False))


def test_without_the_lock_a_batch_ends_twice() -> None:
    assert fault(1, Rules(locks=False))


def test_an_addition_that_holds_no_message_comes_after_the_end() -> None:
    assert fault(1, Rules(holds=False))
