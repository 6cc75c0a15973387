"""The conditions that every story must meet. Each check is a function that returns violations, and does not guess.

An effect that is possible, because a process died or got no answer, is not a violation.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from math import inf

from tests.stress.attempts import attempts, cancellations, unnoted, within
from tests.stress.ledger import DONE, REFUSED, Op
from tests.stress.mix import ordered
from tests.stress.story import FINISHING, GRACE, LIVE, POPS, Claim, Message, Story, certain_holds
from tests.stress.violation import Violation

CLOCKS = 0.01
"""Seconds by which a message may be early, because the clocks of the machine and of the database differ."""


def places(story: Story) -> Iterator[Violation]:
    """Every acknowledged message is in one place, one that was refused or rolled back is in none, and there are no
    others."""
    rows = defaultdict(list)
    for row in story.rows:
        rows[row.uid].append(row)
        if row.uid not in story.messages:
            yield Violation("invented", f"{row.uid}, id {row.id}, was pushed by nobody", row.queue, (row.uid,))
    for (queue, id), uids in story.uids.items():
        if len(uids) > 1:
            yield Violation("one id", f"id {id} was given to several messages: {sorted(uids)}", queue, tuple(uids))
    for message in story.messages.values():
        found = rows[message.uid]
        words = (message.queue, (message.uid,), message.op.begin)
        if len(found) > 1:
            states = [f"id {row.id} {row.state}" for row in found]
            yield Violation("doubled", f"{message.uid} is there {len(found)} times: {states}", *words)
        if message.push is None and (found or message.claims):
            why = "refused" if message.op.outcome == REFUSED else "skipped" if not message.op.txn else "rolled back"
            yield Violation("undone", f"the push of {message.uid} was {why}, and it is there", *words)
        if message.push and message.push.sure and not found and not _may_be_forgotten(story, message):
            yield Violation("lost", f"{message.uid}, id {message.id}, was acknowledged and is nowhere", *words)
        if message.gone_from < inf and any(row.state in LIVE for row in found):
            yield Violation("unfinished", f"{message.uid} was finished, and is {found[0].state}", *words)
        if message.op.ids and message.push and found and (message.id != found[0].id):
            yield Violation("another id", f"{message.uid} has id {found[0].id}, and push said {message.id}", *words)


def _may_be_forgotten(story: Story, message: Message) -> bool:
    """Return whether a finished message is gone, because the queue has no history."""
    return message.queue == "bare" and any(True for _ in message.endings)


def batches(story: Story) -> Iterator[Violation]:
    """A bulk push, and a transaction, takes effect completely or not at all."""
    found = {row.uid for row in story.rows} | {got.uid for op in story.ops for got in op.got}
    whole: dict[str, list[Op]] = defaultdict(list)
    for op in story.ops:
        if op.verb == "push" and op.conflict == "raise" and op.queue != "bare":
            whole[op.txn or op.name].append(op)
    for ops in whole.values():
        if any(op.outcome == REFUSED for op in ops):
            continue
        there = [new.uid for op in ops for new in op.new if new.uid in found]
        missing = [new.uid for op in ops for new in op.new if new.uid not in found]
        if there and missing:
            text = (
                f"{len(there)} of {len(there) + len(missing)} messages of {ops[0].name} are there; {missing[0]} is not"
            )
            yield Violation("half a batch", text, ops[0].queue, (there[0], missing[0]), ops[0].begin)


def holds(story: Story) -> Iterator[Violation]:
    """No two consumers hold a message at once, and in a group or a strict queue one message at a time is held."""
    groups: dict[tuple[str, str | None], list[tuple[float, float, Message, Claim]]] = defaultdict(list)
    for message in story.messages.values():
        mine = certain_holds(story, message)
        for (_, end, one), (start, _, other) in pairwise(mine):
            if one is not other and start < end:
                text = f"{message.uid} was held by {one.op.who} ({one.op.name}) and {other.op.who} ({other.op.name})"
                yield Violation("held by two", text, message.queue, (message.uid,), start)
        if ordered(message.queue):
            groups[message.queue, message.new.group] += ((*hold[:2], message, hold[2]) for hold in mine)
    for (queue, group), all_of_them in groups.items():
        latest: tuple[float, float, Message, Claim] | None = None
        for hold in sorted(all_of_them, key=lambda hold: hold[:2]):
            together = latest and hold[3].op.txn and hold[3].op.txn == latest[3].op.txn
            if latest and latest[2] is not hold[2] and hold[0] < latest[1] and not together:
                text = f"{latest[2].uid} and {hold[2].uid} of {_named(group)} were in progress at once"
                yield Violation("two of a group", text, queue, (latest[2].uid, hold[2].uid), hold[0])
            if latest is None or hold[1] > latest[1]:
                latest = hold


def _named(group: str | None) -> str:
    return f"group {group}" if group else "the queue"


def finishes(story: Story) -> Iterator[Violation]:
    """A message is finished once and never redelivered, and a message that was never committed is never delivered."""
    for message in story.messages.values():
        words = (message.queue, (message.uid,))
        completed = [
            act for claim in message.claims for act in claim.acts if act.verb == "complete" and act.effect.sure
        ]
        taken = [claim for claim in message.real if claim.takes]
        times = len({act.op.name for act in completed}) + len(taken)
        if times > 1:
            yield Violation(
                "finished twice", f"{message.uid} was finished {times} times", *words, completed[-1].op.begin
            )
        if message.queue == "once" and len(message.real) > 1:
            yield Violation("delivered twice", f"{message.uid} was popped twice", *words, message.real[1].op.begin)
        for claim in message.claims:
            if message.gone_from < claim.op.earliest:
                text = f"{message.uid} was finished, and then popped by {claim.op.who}"
                yield Violation("came back", text, *words, claim.op.begin)
            if message.push and claim.op.end < message.push.begin and claim.op.txn != message.op.txn:
                text = f"{message.uid} was popped by {claim.op.who} before it was committed"
                yield Violation("uncommitted", text, *words, claim.op.begin)
        yield from _resurrected(message)


def _resurrected(message: Message) -> Iterator[Violation]:
    dead = [act for claim in message.claims for act in claim.acts if act.op.state == "dead" and act.effect.sure]
    for act in dead:
        for claim in message.real:
            redriven = any(
                redrive.begin < claim.op.end and act.effect.begin < redrive.end for redrive in message.redrives
            )
            if claim.op.earliest > act.effect.end and not redriven:
                text = f"{message.uid} was a dead letter, and then popped by {claim.op.who}"
                yield Violation("dead, and back", text, message.queue, (message.uid,), claim.op.begin)


def fences(story: Story) -> Iterator[Violation]:
    """A consumer that has lost its lease finishes nothing, and one that holds it is not refused."""
    for message in story.messages.values():
        mine = certain_holds(story, message)
        for claim in message.claims:
            for act in claim.acts:
                for begin, end, other in mine:
                    covered = begin <= act.op.begin and act.op.end <= end
                    if covered and other is not claim and act.effect.sure and not act.op.txn:
                        text = f"{act.op.who} did {act.verb} to {message.uid} while {other.op.who} held it"
                        yield Violation("not fenced", text, message.queue, (message.uid,), act.op.begin)
            yield from _refused(story, message, claim)


def _refused(story: Story, message: Message, claim: Claim) -> Iterator[Violation]:
    if message.queue == "once" or claim.op.txn or claim.op.kept or not (claim.effect and claim.effect.sure):
        return
    until = claim.op.earliest + claim.op.lease - CLOCKS
    for op in sorted(claim.attempted, key=lambda op: op.begin):
        if op.verb == "extend" and op.outcome == DONE:
            until = op.begin + op.seconds - CLOCKS
            continue
        if op.error != "LeaseLost" or message.id not in (op.lost or (message.id,)):
            return  # from here on the message may be finished
        if op.end < until:
            text = f"{op.who} held {message.uid}, and {op.verb} said that the lease was lost"
            yield Violation("refused in vain", text, message.queue, (message.uid,), op.begin)


def early(story: Story) -> Iterator[Violation]:
    """No message is delivered before the time of its push, its retry or its release."""
    for message in story.messages.values():
        if not message.push:
            continue
        not_before = [(message.op.begin + message.new.delay, "its delay")] if message.new.delay else []
        for claim in message.claims:
            for until, why in not_before:
                if claim.op.end < until - CLOCKS and not story.clock_was_set:
                    text = f"{message.uid} was popped {until - claim.op.end:.3f} s before the end of {why}"
                    yield Violation("early", text, message.queue, (message.uid,), claim.op.begin)
        for one in message.claims:
            for act in one.acts:
                until = act.op.begin + act.op.soonest
                for claim in message.claims:
                    later = claim.op.earliest >= act.op.end
                    if later and act.effect.sure and claim.op.end < until - CLOCKS and not message.redrives:
                        text = f"{message.uid} was popped {until - claim.op.end:.3f} s too early after {act.op.name}"
                        yield Violation("early", text, message.queue, (message.uid,), claim.op.begin)


def keys(story: Story) -> Iterator[Violation]:
    """A key is unique among the live messages, and it is refused only if one of them has it."""
    by_key: dict[tuple[str, str], list[Message]] = defaultdict(list)
    # At most once, by a cancelled task: the end of its life is unknown.
    lost = {row.uid for row in story.rows if row.state == "lost"}
    for message in story.messages.values():
        if message.new.key:
            by_key[message.queue, message.new.key].append(message)
    for (queue, key), messages in by_key.items():
        live = sorted(
            (each.live_from, each.surely_until, each.uid)
            for each in messages
            if each.live_from < inf and (each.claims or each.uid not in lost)
        )
        for position, (_, until, one) in enumerate(live):
            for since, other_until, other in live[position + 1 :]:
                if since < min(until, other_until):
                    yield Violation("key twice", f"{one} and {other} were live with {key}", queue, (one, other), since)
        for message in messages:
            yield from _returned(story, message)
            refused = message.op.error == "DuplicateKey" or (message.push is None and message.op.outcome == DONE)
            alone = not message.op.txn and len(message.op.new) == 1
            taken = any(_may_live(other, message.op) for other in messages if other is not message)
            if refused and alone and not taken:
                text = f"{message.uid} was refused for its key {key}, which nobody had"
                yield Violation("key free", text, queue, (message.uid,), message.op.begin)


def _returned(story: Story, message: Message) -> Iterator[Violation]:
    """With `on_conflict="return"` the result is the id of the message that has the key."""
    if message.op.conflict != "return" or message.op.outcome != DONE or message.push:
        return
    for uid in story.uids.get((message.queue, message.id or 0), ()):
        if uid in story.messages and story.messages[uid].new.key != message.new.key:
            text = f"{message.uid} was refused for {uid}, which has another key"
            yield Violation("another key", text, message.queue, (message.uid, uid), message.op.begin)


def _may_live(message: Message, op: Op) -> bool:
    return message.push is not None and message.push.begin <= op.end and op.begin <= message.gone_from


def order_in_batches(story: Story) -> Iterator[Violation]:
    """A batch is in the order of its queue."""
    for op in story.ops:
        if op.verb in POPS and len(op.got) > 1:
            keys = [place_in(story, op.queue, got.uid, got.id) for got in op.got]
            if None not in keys and any(one > other for one, other in pairwise(keys)):  # type: ignore[operator]
                text = f"{op.name} got {[got.id for got in op.got][:20]}"
                yield Violation("batch out of order", text, op.queue, tuple(got.uid for got in op.got[:5]), op.begin)


def place_in(story: Story, queue: str, uid: str, id: int) -> tuple[float, ...] | None:
    """Return the place of a message in the order of its queue, if it is known."""
    order = story.definitions[queue].order
    message = story.messages.get(uid)
    if order == "priority" and message:
        return (-message.new.priority, id)
    return {"fifo": (id,), "lifo": (-id,)}.get(order)


def contents(story: Story) -> Iterator[Violation]:
    """A message is delivered as it was pushed."""
    for op in story.ops:
        for got in op.got:
            if not got.intact:
                yield Violation("changed", f"the payload of {got.uid} is not what was pushed", op.queue, (got.uid,))


def errors(story: Story) -> Iterator[Violation]:
    """A refusal of a verb is a TablequeueError, and no client hangs."""
    for op in story.ops:
        if "." in op.error and op.verb not in ("commit", "rollback") and not _of_the_block(story, op):
            uids = tuple(new.uid for new in op.new)[:3]
            yield Violation("raw error", f"{op.verb} raised {op.error}: {op.text}", op.queue, uids, op.begin)
        if op.error == "BadInput":
            yield Violation("bad input", f"{op.verb} was refused: {op.text}", op.queue, (), op.begin)
        if op.error == "DatabaseError":
            yield Violation("damaged", f"{op.verb}: {op.text}", op.queue, (), op.begin)
        if op.verb == "crashed":
            yield Violation("crashed", f"{op.who}: {op.text}", at=op.begin)
        if op.verb == "hung":
            yield Violation("hung", f"{op.whom} did not end", at=op.begin)


def _of_the_block(story: Story, op: Op) -> bool:
    """Whether the error of `consume` is that of a commit or a rollback in its block, which passes through."""
    within = [one for one in story.ops_of(op.who) if op.begin <= one.begin and one.end <= op.end]
    return op.verb == "consume" and any(one.verb in ("commit", "rollback") and one.error == op.error for one in within)


# Seconds within which a call must return or be refused: twice SQLite's time-out.
ANSWER = 10.0


def blocked(story: Story) -> Iterator[Violation]:
    """No pop or finish waits for long for another client that hangs, or for its transaction."""
    for op in story.ops:
        if op.verb in ("pop", *FINISHING, "extend") and op.end < inf and not op.txn and not op.wait and not op.kept:
            own = [*story.stalls, *story.servers, *story.stops_before(op.who)]
            excused = sum(window.end - window.begin + GRACE for window in own if window.meets(op.begin, op.end))
            if op.end - op.begin - excused > ANSWER:
                text = f"{op.verb} of {op.who} took {op.end - op.begin:.1f} s ({op.name})"
                yield Violation("blocked", text, op.queue, tuple(got.uid for got in op.got[:1]), op.begin)


def ends(story: Story) -> Iterator[Violation]:
    """At the end, every message is finished or a dead letter, and each dead or lost message has a reason."""
    popped = unnoted(story)
    for row in story.rows:
        message = story.messages.get(row.uid)
        if message is None:
            continue
        words = (row.queue, (row.uid,), story.over)
        if row.state in LIVE and row.state != "dead":
            yield Violation("stranded", f"{row.uid}, id {row.id}, is {row.state}, and nobody gets it", *words)
        acts = [act for claim in message.claims for act in claim.acts]
        if row.state == "dead":
            killed = any(act.ends and act.verb == "fail" for act in acts)
            worn = row.attempts >= story.definitions[row.queue].max_attempts
            if not killed and not worn and row.queue != "worked":
                yield Violation("dead too soon", f"{row.uid} is dead after {row.attempts} attempts", *words)
        noted = message.real or row.error or within(popped[row.queue], message.op.begin, inf)
        if row.state == "lost" and not noted:
            yield Violation("lost to nobody", f"{row.uid} was popped at most once, and by nobody", *words)


def workers(story: Story) -> Iterator[Violation]:
    """A worker does not report more completions than its handlers made."""
    handled = Counter(op.who for op in story.ops if op.kept for _ in op.got)
    for op in story.ops:
        if op.verb == "work" and op.outcome == DONE and op.n > handled[op.who]:
            text = f"{op.who} said that it completed {op.n} messages, and handled {handled[op.who]}"
            yield Violation("miscounted", text, op.queue, at=op.begin)


CHECKS: list[Callable[[Story], Iterator[Violation]]] = [
    errors,
    places,
    batches,
    holds,
    finishes,
    fences,
    attempts,
    cancellations,
    early,
    keys,
    order_in_batches,
    contents,
    blocked,
    ends,
    workers,
]
