"""A ready message is delivered soon, as long as consumers pop.

That a message is late has witnesses: pops that began long after it was ready for certain, and ended without it although
they wanted more than there was, or got what comes after it. A pop that only took long is no witness, nor is one at a
moment when somebody may have had the message for whom nothing is noted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from math import inf

from tests.stress.checks import place_in
from tests.stress.ledger import CANCELLED, DONE, PENDING, REFUSED, UNKNOWN, Op
from tests.stress.mix import ordered
from tests.stress.order import groups_of
from tests.stress.story import GRACE, POPS, Claim, Message, Story, Window, lease_over
from tests.stress.violation import Violation

WITNESSES = 3
LATE = 2.0
"""The default limit in seconds."""
SLOW = 0.4
"""Seconds after which a call counts as having waited for others."""


def late(story: Story, bound: float = LATE) -> Iterator[Violation]:
    """Messages and groups that were ready and skipped for longer than the limit."""
    slow = list(_slow(story))
    witnesses = {queue: Witnesses(story, queue, slow, bound) for queue in story.definitions}
    for queue, messages in story.of_queue().items():
        # A worker holds messages that no handler has begun.
        for message in messages if queue != "worked" and not ordered(queue) else []:
            for begin, end in _free(message):
                yield from witnesses[queue].of(message, begin, end)
    for (queue, group), messages in groups_of(story).items():
        for begin, end in _idle(story, queue, group, messages, witnesses[queue].excuses):
            there = [each for each in messages if each.live_from <= begin and each.surely_until >= end]
            for message in there[:1]:
                # A claim of one message of the group ends its idle time.
                yield from witnesses[queue].of(message, begin, end)


class Witnesses:
    """The evidence that messages of a queue were ready and not delivered, and possible excuses."""

    def __init__(self, story: Story, queue: str, slow: Sequence[Window], bound: float) -> None:
        self._story, self._bound = story, bound
        self.excuses = merged(list(_excuses(story, queue)))
        self._asleep = merged([*self.excuses, *slow])
        # Verbs that read the table outside any transaction of the caller.
        pops = [
            op
            for op in story.ops
            if op.verb == "pop" and op.queue == queue and op.outcome == DONE and op.n and not op.txn and not op.kept
        ]
        self._waits = [op for op in pops if op.wait > bound]
        self._pops = Pops(story, [op for op in pops if not met(self.excuses, op.begin, op.end)])

    def of(self, message: Message, begin: float, end: float) -> Iterator[Violation]:
        """Return the evidence about a message that was ready from `begin` until `end`."""
        if end - begin <= self._bound:
            return
        what = f"{message.uid} (id {message.id})" + (f" of group {message.new.group}" if message.new.group else "")
        since = _excused(begin, self.excuses, self._bound)
        if in_vain := self._pops.without(self._story, message, since + self._bound, end):
            text = f"{what} was ready for {end - since:.2f} s, passed over by {in_vain} pops after {self._bound} s"
            yield Violation("late", text, message.queue, (message.uid,), since)
        elif not ordered(message.queue) and (op := self._slept(begin, end)):
            text = f"{what} was ready for {end - begin:.2f} s while {op.who} waited ({op.name})"
            yield Violation("not woken", text, message.queue, (message.uid,), begin)

    def _slept(self, begin: float, end: float) -> Op | None:
        """Return the clients that waited for longer than the limit, and only for a message."""
        for op in self._waits:
            since = _excused(max(op.begin, begin), self._asleep, self._bound)
            if since + self._bound < min(op.end, end):
                return op
        return None


Place = tuple[float, ...]
FIRST, ANY, LAST = (-inf,), (1e300,), (inf,)
BLOCK = 64


class Pops:
    """The pops of a queue, each with the last place in the order up to which it proves that no message was ready."""

    def __init__(self, story: Story, ops: Sequence[Op]) -> None:
        self._ops = ops
        self._begins = [op.begin for op in ops]
        self._places = [_reached(story, op) for op in ops]
        # Behind a backlog all of them are looked at for each message: so those that can show nothing, by blocks.
        self._blocks = [max(self._places[start : start + BLOCK]) for start in range(0, len(ops), BLOCK)]

    def without(self, story: Story, message: Message, begin: float, end: float) -> int:
        """Return the number of pops in that time that skipped the message. Too few of them may be bad luck."""
        mine = (message.id is not None and place_in(story, message.queue, message.uid, message.id)) or ANY
        number, position = 0, bisect_left(self._begins, begin)
        while position < len(self._ops) and self._begins[position] < end:
            if position % BLOCK == 0 and self._blocks[position // BLOCK] <= mine:
                position += BLOCK
                continue
            number += self._places[position] > mine and self._ops[position].end <= end
            position += 1
        return number if number >= WITNESSES else 0


def _reached(story: Story, op: Op) -> Place:
    """Return the end of the order if it got fewer messages than it asked for, otherwise the last place that it got."""
    if len(op.got) < op.n:
        return LAST
    places = [place_in(story, op.queue, got.uid, got.id) for got in op.got]
    return FIRST if ordered(op.queue) else max((place for place in places if place is not None), default=FIRST)


def _slow(story: Story) -> Iterator[Window]:
    """Return the times in which a client waited for the database itself, as others may have done."""
    for op in story.ops:
        if op.verb in ("push", "pop", "complete", "fail", "release") and not op.wait and SLOW < op.end - op.begin < inf:
            yield Window(op.begin, op.end)


def _excused(begin: float, excuses: Sequence[Window], bound: float) -> float:
    """Return the moment from which the limit counts: after all excuses for a delay."""
    for window in excuses:
        if window.begin < begin + bound and begin < window.end:
            begin = window.end
    return begin


# -- when a message is ready ---------------------------------------------------------------------------------------


def _free(message: Message) -> Iterator[tuple[float, float]]:
    """Return the times in which the message was certainly ready, until the pop that got it began."""
    if not message.push or message.redrives:
        return
    free = message.live_from + message.new.delay
    known = 0
    for claim in sorted(message.claims, key=lambda claim: claim.op.end):
        if claim.attempts <= known + 1 and free < claim.op.earliest:
            yield free, claim.op.earliest
        if claim.effect and claim.effect.sure:
            released = any(act.verb == "release" for act in claim.acts)
            known = claim.attempts - released
        free = max(free, _free_by(claim))


def _free_by(claim: Claim) -> float:
    """Return the time at which a message was certainly ready again, if it was popped again after this claim."""
    if claim.effect is None:
        return claim.rolled_back
    if claim.takes or claim.op.queue == "once" or not claim.effect.sure:
        return inf
    for act in claim.acts:
        if act.effect.sure and act.op.state not in ("dead", "?") and act.verb in ("release", "fail"):
            return act.effect.end + act.op.delay
        if act.effect.sure and act.verb != "extend":
            return inf
    over = lease_over(claim)
    unsure = [op for op in claim.attempted if op.outcome not in (DONE, REFUSED)]
    return max([over, *((op.end if op.end < inf else over) + op.delay + GRACE for op in unsure)])


def _idle(
    story: Story, queue: str, group: str | None, messages: Sequence[Message], excuses: Sequence[Window]
) -> Iterator[tuple[float, float]]:
    """Return the times in which no message of a group was in progress, delayed or in an open call, for certain."""
    busy = [*excuses]
    for message in messages:
        assert message.push
        pushed = message.push.end if message.push.end < inf else story.death(message.op)
        busy.append(Window(message.op.begin, pushed + message.new.delay))
        busy += (Window(redrive.begin, redrive.end) for redrive in message.redrives)
        busy += (Window(claim.op.earliest, _left(claim)) for claim in message.claims)
    # A call that was refused or rolled back may have blocked the others.
    for each in story.messages.values():
        if each.push is None and each.queue == queue and each.new.group == group:
            end = story.txns[each.op.txn].end if each.op.txn else story.death(each.op)
            busy.append(Window(each.op.begin, end))
    end = -inf
    for window in merged(busy):
        if end > -inf and window.begin > end:
            yield end, window.begin
        end = max(end, window.end)


def _left(claim: Claim) -> float:
    """Return the time after which a claim certainly no longer blocked a group."""
    if claim.effect is None:
        return claim.rolled_back
    if claim.takes:
        return claim.effect.end
    if not claim.effect.sure:
        return inf
    for act in claim.acts:
        if act.effect.sure and act.verb != "extend":
            return act.effect.end + act.op.delay
    return _free_by(claim)


# -- what excuses a delay ------------------------------------------------------------------------------------------


def _excuses(story: Story, queue: str) -> Iterator[Window]:
    """Return the times in which the place of a message of this queue is unknown, or the machine stood still."""
    yield from story.stalls
    yield from (Window(window.begin, window.end + GRACE) for window in story.servers)
    for op in story.ops:
        if op.queue != queue or op.verb in ("work",):
            continue
        if op.outcome in (UNKNOWN, PENDING) or (op.outcome == CANCELLED and op.verb in (*POPS, "consume")):
            # A client that died may have held the head of a group until its lease expired.
            lease = op.lease if ordered(queue) and op.outcome != CANCELLED else 0
            yield Window(op.begin, story.death(op) + lease)
        elif op.verb == "consume" and op.n > 1:
            yield Window(op.begin, op.end + GRACE / 10)
    for who, stops in story.stops.items():
        for stop in stops:
            if any(_in_the_middle(story, op, stop) for op in story.ops_of(who) if _concerns(story, op, queue)):
                yield Window(stop.begin, stop.end + GRACE / 10)


def _concerns(story: Story, op: Op, queue: str) -> bool:
    return op.queue == queue or not story.side_by_side


def _in_the_middle(story: Story, op: Op, stop: Window) -> bool:
    end = story.txns[op.txn].end if op.txn in story.txns else op.end
    return op.begin <= stop.end and stop.begin <= end


def met(windows: Sequence[Window], begin: float, end: float) -> bool:
    """Return whether a time overlaps any of these windows, which are sorted and do not overlap."""
    position = bisect_left(windows, begin, key=lambda window: window.end)
    return position < len(windows) and windows[position].begin <= end


def merged(windows: Iterator[Window] | Sequence[Window]) -> list[Window]:
    """Return the same times, sorted and without overlaps."""
    result: list[Window] = []
    for window in sorted(windows, key=lambda window: window.begin):
        if result and window.begin <= result[-1].end:
            result[-1] = Window(result[-1].begin, max(result[-1].end, window.end))
        else:
            result.append(window)
    return result
