"""The story of a round: the fate of each message, as far as the ledgers tell, with times that are certain.

Nothing here guesses. An effect has a moment before which it cannot have been, and one after which it must have been;
the latter is infinite where nobody was told that it took place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from tablequeue import Definition
from tests.stress.ledger import DONE, REFUSED, New, Op

# Seconds within which a server notices that a client is dead, and ends its calls and transactions.
GRACE = 1.0
# The same for a client whose statement waited for a lock of a transaction that stays open.
LONG_GRACE = 6.0

POPS = ("pop", "take")
FINISHING = ("complete", "fail", "release")
# The place of a message at the end of the round.
LIVE = ("ready", "scheduled", "in_progress", "blocked", "dead")


@dataclass(frozen=True)
class Row:
    """A message as it is stored at the end.

    state   one of LIVE, or `finished`, or `lost`: popped at most once, and not completed.
    """

    queue: str
    uid: str
    id: int
    state: str
    attempts: int = 0
    error: str = ""


@dataclass(frozen=True)
class Effect:
    """The time at which an operation took effect. `sure` means that it is known to have taken effect."""

    begin: float
    end: float
    sure: bool


@dataclass
class Act:
    """An operation on one claim."""

    op: Op
    verb: str
    effect: Effect

    @property
    def ends(self) -> bool:
        """Whether this may have ended the message: finished, or a dead letter."""
        if self.verb == "complete":
            return True
        return self.verb == "fail" and (not self.effect.sure or self.op.state not in ("ready", "scheduled"))


@dataclass
class Claim:
    """A claim of a message. `effect` is None if it was rolled back."""

    op: Op
    uid: str
    token: str
    attempts: int
    effect: Effect | None
    rolled_back: float = inf
    """The time from which the message was certainly released, if the claim was rolled back."""
    acts: list[Act] = field(default_factory=list)
    attempted: list[Op] = field(default_factory=list)
    """All operations on the claim, including refused ones."""

    @property
    def takes(self) -> bool:
        return self.op.verb == "take"


@dataclass
class Message:
    queue: str
    new: New
    op: Op
    push: Effect | None
    """None if the message was not pushed, because the push was refused or rolled back."""
    id: int | None = None
    claims: list[Claim] = field(default_factory=list)
    redrives: list[Effect] = field(default_factory=list)

    @property
    def uid(self) -> str:
        return self.new.uid

    @property
    def real(self) -> list[Claim]:
        """Claims that certainly took effect, in their order."""
        return [claim for claim in self.claims if claim.effect and claim.effect.sure]

    @property
    def live_from(self) -> float:
        """The time from which the message certainly exists."""
        return self.push.end if self.push and self.push.sure else inf

    @property
    def endings(self) -> Iterator[Effect]:
        """The operations that may have finished it or made it a dead letter."""
        for claim in self.claims:
            if claim.effect and (claim.takes or claim.op.queue == "once"):
                yield claim.effect
            yield from (act.effect for act in claim.acts if act.ends)

    @property
    def surely_until(self) -> float:
        """The time until which it is certainly live, if at all."""
        return min((effect.begin for effect in self.endings), default=inf)

    @property
    def gone_from(self) -> float:
        """The time from which it is certainly finished; dead letters are not finished."""
        sure = [claim.effect.end for claim in self.real if claim.effect and (claim.takes or claim.op.queue == "once")]
        sure += [
            act.effect.end for claim in self.claims for act in claim.acts if act.verb == "complete" and act.effect.sure
        ]
        return min(sure, default=inf)


@dataclass(frozen=True)
class Window:
    """A time in which the machine, the server or a client was disturbed."""

    begin: float
    end: float

    def meets(self, begin: float, end: float) -> bool:
        return self.begin <= end and begin <= self.end


@dataclass
class Txn:
    """A transaction of a client, with its end."""

    begin: float
    end: float
    state: str
    """committed, rolled back, or unknown."""


class Story:
    """The ledgers and the rows at the end, combined by message."""

    def __init__(
        self,
        ops: Sequence[Op],
        rows: Sequence[Row],
        definitions: Mapping[str, Definition],
        side_by_side: bool = True,
    ) -> None:
        self.ops, self.rows, self.definitions = ops, rows, definitions
        self.side_by_side = side_by_side
        """Whether two transactions can write at the same time."""
        self.over = max((op.end if op.end < inf else op.begin for op in ops), default=0.0)
        self.deaths = {
            op.whom: op.end if op.end < inf else op.begin for op in ops if op.verb in ("kill", "exit", "hung")
        }
        self.servers = [Window(op.begin, op.end) for op in ops if op.verb == "server"]
        self.stalls = [Window(op.begin, op.end) for op in ops if op.verb == "stall"]
        self.stops: dict[str, list[Window]] = defaultdict(list)
        for op in ops:
            if op.verb == "stop":
                self.stops[op.whom].append(Window(op.begin, min(op.end, self.deaths.get(op.whom, inf))))
        self._kills: dict[str, list[Op]] = defaultdict(list)
        self._inside: dict[str, list[Op]] = defaultdict(list)
        self._by_client: dict[str, list[Op]] = defaultdict(list)
        for op in ops:
            self._by_client[op.who].append(op)
            if op.verb in ("kill", "exit", "hung"):
                self._kills[op.whom].append(op)
            if op.txn:
                self._inside[op.txn].append(op)
        self.clock_was_set = any(op.verb == "clock" for op in ops)
        self.messages: dict[str, Message] = {}
        self.uids: dict[tuple[str, int], set[str]] = defaultdict(set)
        self._seen()
        self.txns = self._transactions()
        self._pushes()
        self._claims()
        self._acts()

    def of_queue(self) -> dict[str, list[Message]]:
        by: dict[str, list[Message]] = defaultdict(list)
        for message in self.messages.values():
            by[message.queue].append(message)
        return by

    def stops_before(self, who: str) -> list[Window]:
        """Return the stops that a client waits for: its own; where there is one writer at a time, those of all."""
        return self.stops[who] if self.side_by_side else [stop for stops in self.stops.values() for stop in stops]

    def ops_of(self, who: str) -> list[Op]:
        return self._by_client[who]

    def open_until(self, op: Op) -> float:
        """The time until which the transaction of an operation was certainly open and held its locks."""
        inside = self._inside[op.txn]
        ends = [each.begin for each in inside if each.verb in ("commit", "rollback")]
        ends += [each.begin for each in inside if each.outcome != DONE]
        ends += [kill.begin for kill in self._kills[op.who]]
        ends += [server.begin for server in self.servers if server.end > op.begin]
        return min([end for end in ends if end >= op.begin], default=op.end)

    def effect(self, op: Op) -> Effect | None:
        """The time at which the effect of an operation is visible to all; None if it has none."""
        if op.outcome == REFUSED:
            return None
        if op.txn:
            txn = self.txns[op.txn]
            if txn.state == "rolled back" or op.outcome != DONE:
                return None
            return Effect(txn.begin, txn.end, txn.state == "committed")
        done = op.outcome == DONE
        return Effect(op.earliest, op.end if done else inf, done)

    def disturbed(self, who: str, begin: float, end: float) -> bool:
        """Whether the machine, the server, or one that the client waits for stood still in this time; or it died."""
        return any(window.meets(begin, end) for window in (*self.stalls, *self.servers, *self.stops_before(who)))

    def death(self, op: Op) -> float:
        """The time at which an operation that never returned was certainly over: some time after its client's death."""
        if op.end < inf:
            return op.end + (0 if op.outcome in (DONE, REFUSED) else GRACE)
        return self.deaths.get(op.who, self.over) + GRACE

    # -- putting it together ---------------------------------------------------------------------------------------

    def _seen(self) -> None:
        """Find the payloads by id, and the transactions that must have committed because of what they left."""
        for queue, got in ((op.queue, got) for op in self.ops for got in op.got):
            self.uids[queue, got.id].add(got.uid)
        for row in self.rows:
            self.uids[row.queue, row.id].add(row.uid)
        self._found = {uid for uids in self.uids.values() for uid in uids}
        """The messages that any client has seen. A message that was never committed cannot be seen by others."""

    def _transactions(self) -> dict[str, Txn]:
        txns: dict[str, Txn] = {}
        for name, inside in self._inside.items():
            ops = [op for op in inside if op.verb not in ("commit", "rollback")]
            end = next((op for op in inside if op.verb in ("commit", "rollback")), None)
            if not ops:
                continue
            if end is None:
                # The client died before the commit, so nothing was committed.
                grace = LONG_GRACE if any(op.end == inf for op in ops) else GRACE
                txns[name] = Txn(ops[-1].begin, self.deaths.get(ops[0].who, self.over) + grace, "rolled back")
            elif end.verb == "rollback":
                over = end.end if end.outcome == DONE else self.death(end)
                txns[name] = Txn(end.begin, over, "rolled back")
            elif end.outcome == DONE:
                txns[name] = Txn(end.begin, end.end, "committed")
            else:
                # It was seen from outside, by another claim or at the end, so it was committed.
                left = {new.uid for op in ops if op.verb == "push" and op.outcome == DONE for new in op.new}
                txns[name] = Txn(end.begin, inf, "committed" if left & self._elsewhere(name) else "unknown")
        return txns

    def _elsewhere(self, txn: str) -> set[str]:
        seen = {row.uid for row in self.rows}
        return seen | {got.uid for op in self.ops if op.txn != txn for got in op.got}

    def _pushes(self) -> None:
        for op in self.ops:
            if op.verb != "push":
                continue
            effect = self.effect(op)
            ids: Sequence[int | None] = op.ids or [None] * len(op.new)
            for new, id in zip(op.new, ids, strict=True):
                self.messages[new.uid] = Message(op.queue, new, op, self._pushed(op, new, id, effect), id)
        for (_, id), uids in self.uids.items():
            for uid in uids:
                message = self.messages.get(uid)
                if message and message.id is None:
                    message.id = id

    def _pushed(self, op: Op, new: New, id: int | None, effect: Effect | None) -> Effect | None:
        if effect is None or op.outcome != DONE or op.conflict == "raise":
            return effect
        if id is None:
            return None  # skipped
        if op.conflict == "skip":
            return effect
        # The returned id is that of the message, or of another one with its key.
        owners = self.uids.get((op.queue, id), set())
        if owners and new.uid not in owners:
            return None
        return effect if owners else Effect(effect.begin, inf, False)

    def _claims(self) -> None:
        self._by_token: dict[tuple[str, int, str], Claim] = {}
        for op in self.ops:
            if op.verb not in POPS or op.outcome != DONE:
                continue
            effect = self.effect(op)
            for got in op.got:
                claim = Claim(op, got.uid, got.token, got.attempts, effect)
                if effect is None:
                    claim.rolled_back = self.txns[op.txn].end
                self._by_token[op.queue, got.id, got.token] = claim
                if message := self.messages.get(got.uid):
                    message.claims.append(claim)

    def _acts(self) -> None:
        # Without those whose push returned the id of another message with their key.
        owners = {(message.queue, message.id): message for message in self.messages.values() if message.push}
        for op in self.ops:
            effect = self.effect(op) if op.held else None
            for id, token in op.held:
                if op.verb == "redrive":
                    if effect and op.n and (message := owners.get((op.queue, id))):
                        message.redrives.append(effect)
                    continue
                claim = self._by_token.get((op.queue, id, token))
                if claim is None:
                    continue
                claim.attempted.append(op)
                verb = "complete" if op.verb in POPS else op.verb
                if op.error == "LeaseLost" and id not in op.lost and not op.txn:
                    # The others are completed.
                    claim.acts.append(Act(op, verb, Effect(op.begin, op.end, True)))
                elif effect:
                    claim.acts.append(Act(op, verb, effect))


def certain_holds(story: Story, message: Message) -> list[tuple[float, float, Claim]]:
    """Return the times in which a message is certainly held by a consumer.

    A hold lasts from the return of the pop until the first attempt to finish it, or until its lease may have expired,
    and as long as the transaction of the pop is open.
    """
    holds = []
    for claim in message.claims:
        if claim.op.txn:
            holds.append((claim.op.end, story.open_until(claim.op), claim))
        if (
            claim.effect
            and claim.effect.sure
            and claim.effect.end < inf
            and not claim.takes
            and message.queue != "once"
        ):
            holds += ((start, end, claim) for start, end in _under_lease(story, claim, claim.effect.end))
    return sorted((hold for hold in holds if hold[0] < hold[1]), key=lambda hold: hold[:2])


CLOCKS = 0.05
"""Seconds by which a lease may end before its end by the machine's clock."""


def _under_lease(story: Story, claim: Claim, begin: float) -> Iterable[tuple[float, float]]:
    if claim.op.kept:
        end = min((op.begin for op in claim.attempted), default=begin)
        if not story.disturbed(claim.op.who, begin - claim.op.lease, end):
            yield begin, end
        return
    until = claim.op.earliest + claim.op.lease - CLOCKS
    for op in sorted(claim.attempted, key=lambda op: op.begin):
        if begin < min(until, op.begin):
            yield begin, min(until, op.begin)
        if op.verb != "extend" or op.outcome != DONE:
            return
        begin, until = op.end, op.begin + op.seconds - CLOCKS
    if begin < until:
        yield begin, until


def lease_over(claim: Claim) -> float:
    """Return the time at which the lease has certainly expired, if the message was not finished."""
    assert claim.effect
    extended = [op.end + op.seconds for op in claim.attempted if op.verb == "extend" and op.outcome == DONE]
    unsure = [inf for op in claim.attempted if op.verb == "extend" and op.outcome not in (DONE, REFUSED)]
    return max([claim.effect.end + claim.op.lease, *extended, *unsure])
