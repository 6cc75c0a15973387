"""A readable failure: the shortest history of it that can be found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf

from tests.stress.ledger import Op
from tests.stress.mix import Mix
from tests.stress.run import Result
from tests.stress.story import POPS, Message, Story
from tests.stress.violation import Violation

# Kills and stops are shown if they happened at most this many seconds before or after.
AROUND = 3.0
LONGEST = 60
# Seconds after which an open transaction counts as long.
OPEN = 0.9
ENDS = ("commit", "rollback")


def history(story: Story, violation: Violation) -> list[str]:
    """Return the operations on the messages, on their group and key, and the kills and stops in the meantime."""
    concerned = [story.messages[uid] for uid in violation.uids if uid in story.messages]
    uids = {message.uid for message in concerned} | set(violation.uids)
    ids = {(message.queue, message.id) for message in concerned if message.id is not None}
    ops = [op for op in story.ops if _is_about(op, uids, ids)]
    txns = {op.txn for op in ops if op.txn}
    ops += [op for op in story.ops if op.txn in txns and op not in ops]
    ops += _of_the_group(story, concerned, violation, ops)
    ops += _unnoticed(story, concerned, violation)
    ops += _open_meanwhile(story, concerned, violation)
    whom = {op.who for op in ops}
    times = [op.begin for op in ops] or [violation.at]
    for op in story.ops:
        near = times[0] - AROUND <= op.begin <= max(times) + AROUND
        if (op.verb in ("server", "stall", "hung", "crashed") and near) or (
            op.verb in ("kill", "stop") and op.whom in whom
        ):
            ops.append(op)
    unique = {op.name: op for op in ops}
    lines = sorted(unique.values(), key=lambda op: op.begin)
    # Only the end of a long history.
    return [_line(op, uids, story) for op in lines[-LONGEST:]]


def _is_about(op: Op, uids: set[str], ids: set[tuple[str, int]]) -> bool:
    return (
        any(new.uid in uids for new in op.new)
        or any(got.uid in uids for got in op.got)
        or any((op.queue, id) in ids for id, _ in op.held)
    )


def _unnoticed(story: Story, concerned: Sequence[Message], violation: Violation) -> Iterator[Op]:
    """Return pops of the queue with an unknown outcome, between two known ones."""
    if violation.kind in ("claimed unnoticed", "lost to nobody", "lost", "stranded", "late", "not woken") and concerned:
        since = max([concerned[0].op.begin, *(c.op.begin for c in concerned[0].claims if c.op.begin < violation.at)])
        for op in story.ops:
            meets = since <= op.end and op.begin <= violation.at
            if meets and op.verb in (*POPS, "consume") and op.queue == violation.queue and op.outcome != "done":
                yield op


def _open_meanwhile(story: Story, concerned: Sequence[Message], violation: Violation) -> Iterator[Op]:
    """Return transactions on the queue that stayed open while a message was late."""
    if violation.kind not in ("late", "not woken", "blocked") or not concerned:
        return
    until = max((claim.op.begin for claim in concerned[0].claims), default=violation.at)
    for op in story.ops:
        if op.txn in story.txns and op.queue == violation.queue and violation.at < story.txns[op.txn].end:
            stayed = min(until, story.txns[op.txn].end) - max(op.begin, violation.at)
            if stayed > OPEN:
                yield from (op, *(end for end in story.ops_of(op.who) if end.txn == op.txn and end.verb in ENDS))


def _of_the_group(story: Story, concerned: Sequence[Message], violation: Violation, ops: Sequence[Op]) -> Iterator[Op]:
    """Return other operations in the group at the time, if its order matters."""
    if violation.kind not in ("overtaken", "out of turn", "two of a group", "late"):
        return
    groups = {(message.queue, message.new.group) for message in concerned if message.new.group}
    first = min((message.op.begin for message in concerned), default=0)
    for message in story.messages.values():
        if (message.queue, message.new.group) in groups:
            for claim in message.claims:
                if first <= claim.op.end and claim.op.begin <= violation.at + 1:
                    yield from (claim.op, *claim.attempted)


def _line(op: Op, uids: set[str], story: Story) -> str:
    start = story.ops[0].begin if story.ops else 0
    end = f"{op.end - start:9.4f}" if op.end < inf else "    never"
    new = [
        f"{each.uid}{_with(each.group, each.key, each.delay)}" for each in op.new if each.uid in uids or len(op.new) < 4
    ]
    got = [f"{got.uid}=id {got.id} attempt {got.attempts}" for got in op.got if got.uid in uids or len(op.got) < 4]
    words = [
        f"{op.begin - start:9.4f} to {end}",
        f"{op.who:16}",
        f"{op.verb}{' ' + op.queue if op.queue else ''}{' ' + op.whom if op.whom else ''}",
        f"by {op.by}" if op.by else "",
        f"in {op.txn}" if op.txn else "",
        f"{new}" if op.new else "",
        f"of {len(op.new)}" if len(op.new) > len(new) else "",
        f"n={op.n}" if op.verb in ("pop", "take") and op.n != 1 else "",
        f"finishing {[id for id, _ in op.held][:4]}" if op.held else "",
        f"delay={op.delay}" if op.delay else "",
        f"ids {list(op.ids)[:4]}" if op.ids else "",
        f"got {got} of {len(op.got)}" if op.got else "got nothing" if op.verb in ("pop", "take") else "",
        op.state,
        op.outcome if op.outcome != "done" else "",
        f"{op.error}: {op.text[:200]}" if op.error else "",
    ]
    return "  ".join(word for word in words if word)


def _with(group: str | None, key: str | None, delay: float) -> str:
    named = [("group", group), ("key", key), ("delay", delay or None)]
    words = ", ".join(f"{name} {value}" for name, value in named if value is not None)
    return f" ({words})" if words else ""


def shrunk(failed: Result, play: Callable[[Mix], Result], go_on: Callable[[], bool], tries: int = 2) -> Result:
    """Return the smallest round that fails in the same way and is found while `go_on` is true.

    Rounds are never exactly the same, so each smaller mix is run a few times before it counts as passing.
    """
    kind, best = failed.violations[0].kind, failed
    for smaller in _smaller(best, failed.violations[0].queue):
        for _ in range(tries):
            if not go_on():
                return best
            mix = smaller(best.mix)
            if mix == best.mix:
                break
            result = play(mix)
            same = [violation for violation in result.violations if violation.kind == kind]
            if same:
                result.violations = same
                best = result
                break
    return best


def _smaller(result: Result, queue: str) -> Iterator[Callable[[Mix], Mix]]:
    if queue:
        yield lambda mix: mix.of_queue(queue)
    for kind in result.mix.kinds:
        yield lambda mix, kind=kind: mix.without(kind)  # type: ignore[misc]
