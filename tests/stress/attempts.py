"""Every claim counts as an attempt unless it is released, so no claim can go unnoticed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import inf

from tests.stress.ledger import CANCELLED, PENDING, UNKNOWN
from tests.stress.mix import LEASE
from tests.stress.story import POPS, Claim, Story
from tests.stress.violation import Violation


def attempts(story: Story) -> Iterator[Violation]:
    """Check that each claim counts once. A claim that is in no ledger must have had a client that died."""
    times = unnoted(story)
    for message in story.messages.values():
        before: Claim | None = None
        if message.redrives:
            continue  # attempts begin again
        for claim in sorted(message.real, key=lambda claim: (claim.attempts, claim.op.end)):
            words = (message.queue, (message.uid,), claim.op.begin)
            released = [act for act in before.acts if act.verb == "release"] if before else []
            known = before.attempts if before else 0
            lowest = known + 1 - bool(released)
            highest = known + 1 - any(act.effect.sure and act.effect.end < claim.op.end for act in released)
            since = before.op.begin if before else message.op.begin
            allowed = within(times[message.queue], since, claim.op.end)
            if claim.attempts < lowest:
                text = f"{message.uid} was popped for the {claim.attempts}. time, and before for the {known}."
                yield Violation("not counted", text, *words)
            elif claim.attempts > highest + allowed:
                text = (
                    f"{message.uid} was popped {claim.attempts} times; {known} are known, {allowed} could be unnoticed"
                )
                yield Violation("claimed unnoticed", text, *words)
            before = claim


def cancellations(story: Story) -> Iterator[Violation]:
    """Check that a completion or a release that a cancelled task had begun took effect."""
    for message in story.messages.values():
        for claim in message.real:
            first = min(claim.attempted, key=lambda op: op.begin, default=None)
            if first is None or first.outcome != CANCELLED or first.txn or message.redrives:
                continue
            # In time, and nothing happened in between.
            settled = first.end + 3
            if claim.op.earliest + claim.op.lease < first.end + 0.5 or story.deaths.get(first.who, inf) < settled:
                continue
            if first.verb in ("extend", "fail") or story.disturbed(first.who, first.begin, settled):
                continue
            # A release does not count, and a completed message is never redelivered. After a release the next claim has
            # the same number, and its consumer may let its lease expire.
            released = any(other is not claim and other.attempts == claim.attempts for other in message.real)
            for other in message.real:
                if other.attempts == claim.attempts + 1 and not (first.verb == "release" and released):
                    text = f"{message.uid} was popped again although {first.who} had begun to {first.verb} it"
                    yield Violation("forgotten", text, message.queue, (message.uid,), first.begin)


def unnoted(story: Story) -> dict[str, list[tuple[float, float]]]:
    """Return the times in which a client may have claimed a message without a record."""
    times = defaultdict(list)
    for op in story.ops:
        if op.verb not in (*POPS, "consume", "work"):
            continue
        end = story.death(op)
        died = op.outcome in (UNKNOWN, PENDING) or op.verb == "work"
        if op.outcome == CANCELLED or op.verb == "consume":
            # The claimed message is released, unless this was prevented.
            died = died or story.disturbed(op.who, op.begin, end + 3) or story.deaths.get(op.who, inf) < end + 3
            # Or its lease expired before the task was cancelled.
            died = died or op.end - op.begin > max(op.lease, LEASE) / 2
        if died:
            times[op.queue].append((op.earliest, end))
    return times


def within(times: Sequence[tuple[float, float]], begin: float, end: float) -> int:
    return sum(start <= end and begin <= stop for start, stop in times)
