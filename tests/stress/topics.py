"""A round of topics, beside the rounds of queues.

Producers and consumers of a plain and an ordered subscription; seeks, forced ones too, and trims beside them; another
topic that is dropped, created anew with other options, and renamed; and queues with limits. What befalls their
clients is drawn as in a round of queues. Every call is in a ledger, and at the end the ledgers are compared with what
was promised:

- `two`: two consumers held a message at once;
- `early`: a lease was lost before its time, and no forced seek had ended it;
- `missing`: a message did not come, or what a consumer had and did not complete did not come again;
- `quick`, `many`: of a queue with limits more was claimed in some time, or in progress at once;
- `foreign`: a handle got messages of a topic that was created after the one that it was opened for;
- `blocked`: a call waited for long for a client that was away;
- `error`: a call failed otherwise than the library says.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, pairwise
from math import inf
from pathlib import Path
from time import sleep
from typing import Any

from tablequeue import Database, NewMessage, TablequeueError
from tablequeue.errors import ConnectionLost, QueueNotFound, Unreachable
from tablequeue.topic import Subscription, Topic
from tests.stress import limits
from tests.stress.board import DRAIN, RUN
from tests.stress.checks import ANSWER
from tests.stress.client import Setting, Suspension, dump_stacks_when_asked
from tests.stress.held import CLOCKS, LEASE, Held, claims_of
from tests.stress.ledger import DONE, REFUSED, Ledger, Op, read
from tests.stress.mix import BEFALLING, Mix
from tests.stress.roles import Patience
from tests.stress.run import Result, Round
from tests.stress.story import GRACE, Story
from tests.stress.violation import Violation

SUBSCRIPTIONS = ("mail", "turns")
# Seconds that a topic with a retention keeps its messages.
KEEP = 0.5
# Seconds in which the drain must have made what is left in the subscriptions less.
PATIENCE = 40.0
# What a call may say when others change the same things; and when the server closes connections, or is killed.
EXPECTED = ("LeaseLost", "SeekRefused", "Locked", "Conflict", "QueueNotFound", "QueueDiffers", "")
BROKEN = ("ConnectionLost", "Unreachable")
FAULTS = ("damaged", "crashed", "hung")
# The counts that are shown.
SHOWN = ("seek", "trim", "create", "rename", "drop")


def keep(mix: Mix) -> Any:
    """Return how long the topic keeps its messages: in rounds of odd seeds not for long."""
    return KEEP if mix.seed % 2 else "forever"


def drawn(seed: int, kinds: Sequence[str], seconds: float | None, all_of: bool) -> Mix:
    """Return a round of topics with these kinds of action, or some of them."""
    chance = random.Random(f"topics {seed}")
    some = [kind for kind in BEFALLING if kind in kinds and (all_of or chance.random() < 0.7)]
    return Mix(seed, tuple(some), (), seconds or chance.choice([10, 15, 20, 30]), chance.randint(3, 5), 0)


class Client:
    """A process with a Database of its own. Each call is in its ledger."""

    def __init__(self, setting: Setting, who: str, seed: str) -> None:
        self.setting, self.who = setting, who
        self.board = setting.board()
        self.chance = random.Random(seed)
        self.ledger = Ledger(Path(setting.folder), who)
        dump_stacks_when_asked(Path(setting.folder) / f"{who}.stacks")
        steps = Suspension(self.ledger, self.board).steps if "step" in setting.mix.kinds else None
        self.database: Database = self.patiently(lambda: setting.open(who, steps))

    def acts(self, phase: int = RUN) -> bool:
        return self.board.phase <= phase

    def patiently(self, act: Callable[[], Any]) -> Any:
        """Return what `act` returns, however long the server is down."""
        while True:
            try:
                return act()
            except (ConnectionLost, Unreachable):
                sleep(0.1)

    def events(self) -> tuple[Topic, dict[str, Subscription]]:
        """Return the topic that stays, with its subscriptions."""

        def opened() -> tuple[Topic, dict[str, Subscription]]:
            topic = self.database.topic("events")
            return topic, {name: topic.subscription(name) for name in SUBSCRIPTIONS}

        found: tuple[Topic, dict[str, Subscription]] = self.patiently(opened)
        return found

    def attempt(self, act: Callable[..., None], *values: Any) -> None:
        """Act; a refusal is in the ledger already."""
        try:
            act(*values)
        except TablequeueError:
            sleep(0.01)

    # -- verbs -----------------------------------------------------------------------------------------------------

    def push(self, topic: Any, number: int) -> None:
        uids = [f"{self.who}-{number}-{n}" for n in range(self.chance.randint(1, 8))]
        group = self.chance.choice("abcd")
        with self.ledger.op("push", new=[[uid] for uid in uids]) as note:
            note.pushed(topic.push_many([payload(uid) for uid in uids], group=group))

    def pop(self, subscription: Any, name: str, n: int) -> list[Any]:
        with self.ledger.op("pop", queue=name, n=n, lease=LEASE) as note:
            claims: list[Any] = subscription.pop_many(n, lease=LEASE)
            note.got(claims)
        return claims

    def finish(self, subscription: Any, name: str, verb: str, claims: list[Any]) -> None:
        held = [[claim.id, claim.token] for claim in claims]
        with self.ledger.op(verb, queue=name, held=held):
            if verb == "complete":
                subscription.complete_many(claims)
            elif verb == "fail":
                subscription.fail_many(claims, "no", retry_in=self.chance.choice([0, 0, 0.3]))
            else:
                for claim in claims:
                    claim.release()


def payload(uid: str) -> dict[str, str]:
    return {"uid": uid, "fill": ""}


# -- processes -------------------------------------------------------------------------------------------------------


def prepare(client: Client) -> None:
    topic = client.database.create_topic("events", groups=True, keep=keep(client.setting.mix))
    options: Any = {"max_attempts": 1_000_000, "lease": LEASE}
    topic.subscribe("mail", **options)
    topic.subscribe("turns", ordered=True, **options)
    for name, limit in limits.QUEUES.items():
        limited = client.database.create_queue(name, **limit.options, **options)
        groups = [limit.group(number) for number in range(limits.MESSAGES)]
        uids = [f"{group.get('group', 'm')}{number}" for number, group in enumerate(groups)]
        limited.push_many([NewMessage(payload(uid), **group) for uid, group in zip(uids, groups, strict=True)])


def producer(client: Client) -> None:
    topic, _ = client.events()
    number = 0
    while client.acts():
        number += 1
        client.attempt(client.push, topic, number)
        sleep(client.chance.expovariate(20))


def consumer(client: Client, phase: int = RUN) -> None:
    _, opened = client.events()
    while client.acts(phase):
        name = client.chance.choice(SUBSCRIPTIONS)
        client.attempt(consume, client, opened[name], name, phase == DRAIN)


def taker(client: Client) -> None:
    """Take all that the limits of the queues allow."""
    opened = {name: client.patiently(partial(client.database.queue, name)) for name in limits.QUEUES}
    while client.acts():
        name = client.chance.choice([*opened])
        client.attempt(take, client, opened[name], name)


def take(client: Client, limited: Any, name: str) -> None:
    if claims := client.pop(limited, name, client.chance.choice([1, 3, 10])):
        sleep(client.chance.choice([0, 0, 0.05]))
        client.finish(limited, name, "complete", claims)
    else:
        sleep(client.chance.choice([0, 0.01, 0.3]))


def drain(client: Client) -> None:
    """Consume all that is left."""
    while client.acts():
        sleep(0.05)
    consumer(client, DRAIN)


def consume(client: Client, subscription: Any, name: str, all_of: bool) -> None:
    claims = client.pop(subscription, name, client.chance.choice([1, 3, 20, 250]))
    if not claims:
        return sleep(0.02)
    if not all_of:
        sleep(client.chance.choice([0, 0, 0.01, 0.1, LEASE * 1.1 if client.chance.random() < 0.1 else 0]))
    places = sorted(client.chance.choices(range(len(claims) + 1), k=2)) if not all_of else [len(claims)] * 2
    parts = claims[: places[0]], claims[places[0] : places[1]], claims[places[1] :]
    for verb, part in zip(("complete", "fail", "release"), parts, strict=True):
        if part and (all_of or client.chance.random() < 0.95):
            client.attempt(client.finish, subscription, name, verb, part)
    return None


def seeker(client: Client) -> None:
    """Seek and trim. One process, which is not killed: so its ledger has the order of the seeks."""
    topic, opened = client.events()
    while client.acts():
        name = client.chance.choice(SUBSCRIPTIONS)
        to, force = client.chance.choice(["beginning", "end"]), client.chance.random() < 0.5

        def seek(name: str = name, to: Any = to, force: bool = force) -> None:
            with client.ledger.op("seek", queue=name, whom=to, by="force" if force else ""):
                opened[name].seek(to, force=force)

        def trim() -> None:
            with client.ledger.op("trim") as note:
                note.words["n"] = topic.trim()

        # A seek whose effect is unknown is done once more.
        client.attempt(client.patiently, client.chance.choice([seek, trim, trim]))
        sleep(client.chance.expovariate(4))


def changer(client: Client) -> None:
    """Create a topic, push to it, rename it, and drop it, again and again."""
    epoch = 0
    while client.acts():
        epoch += 1
        client.attempt(live, client, f"{client.who}-{epoch}")


def live(client: Client, epoch: str) -> None:
    for name in ("other", "another"):  # of a client that was killed, or did not hear of its drop
        with suppress(QueueNotFound), client.ledger.op("drop"):
            client.database.topic(name).drop()
    options: Any = {"payload": client.chance.choice(["json", "text"])}
    options["keep"] = client.chance.choice(["forever", "consumed", KEEP])
    with client.ledger.op("create"):
        topic = client.database.create_topic("other", **options)
        topic.subscribe("mail", lease=LEASE)
    with client.ledger.op("push"):
        topic.push_many([epoch] * 20)
    for old, new in (("other", "another"), ("another", "other"))[: client.chance.choice([0, 2, 2])]:
        with client.ledger.op("rename"):
            client.database.rename(old, new)
        with client.ledger.op("push"):
            topic.push_many([epoch] * 5)
    sleep(client.chance.random() * 0.3)


def follower(client: Client) -> None:
    """Pop from the topic that is dropped and created again: each handle gets the messages of one."""
    while client.acts():

        def follow() -> None:
            with client.ledger.op("open"):
                mail = client.database.topic("other").subscription("mail")
            epoch = ""
            for _ in range(client.chance.randint(1, 60)):
                with client.ledger.op("pop", queue="other") as note:
                    claims = mail.pop_many(2)
                    epochs = {str(claim.payload) for claim in claims}
                    note.words["text"] = f"{epoch} {' '.join(sorted(epochs))}" if epochs - {epoch or None} else ""
                    epoch = epoch or next(iter(epochs), "")
                    note.words["state"] = epoch
                if claims and client.chance.random() < 0.7:
                    with client.ledger.op("complete", queue="other"):
                        mail.complete_many(claims)
                sleep(0.005)

        client.attempt(follow)


# Each role, and how many processes have it. Nothing befalls the seeker.
ROLES: dict[str, tuple[Callable[[Client], None], int]] = {
    "producer": (producer, 2),
    "seeker": (seeker, 1),
    "changer": (changer, 1),
    "follower": (follower, 2),
    "taker": (taker, 3),
}


# -- the verdict -----------------------------------------------------------------------------------------------------


def judge(
    ops: list[Op], keeps: bool, rest: int, expected: Sequence[str] = EXPECTED, side_by_side: bool = True
) -> Iterator[Violation]:
    yield from waited(ops, side_by_side)
    for op in ops:
        if op.error not in expected:
            yield Violation("error", f"{op.verb}: {op.error}: {op.text}", op.queue, at=op.begin)
        if op.queue == "other" and op.outcome == DONE and len({*op.text.split()}) > 1:
            yield Violation("foreign", f"{op.name}: {op.text}", op.queue, at=op.begin)
    if rest:
        yield Violation("missing", f"{rest} messages are left")
    pushes = {id: op for op in ops if op.verb == "push" and op.outcome == DONE for id in op.ids if op.new}
    for name in limits.QUEUES:
        yield from limits.exceeded(name, chain.from_iterable(claims_of(ops, name, []).values()))
    for name in SUBSCRIPTIONS:
        seeks = [op for op in ops if op.verb == "seek" and op.queue == name and op.outcome != REFUSED]
        claims = claims_of(ops, name, [op for op in ops if op.verb == "seek" and op.queue == name])
        yield from held_twice(name, claims)
        yield from lost_early(name, claims)
        if not seeks or seeks[-1].outcome == DONE:
            yield from missing(name, claims, seeks, pushes, keeps)


def waited(ops: list[Op], side_by_side: bool) -> Iterator[Violation]:
    """No claim and no finish of what stays waits for long for somebody else."""
    story = Story([op for op in ops if op.verb in ("kill", "hung", "stop", "server", "stall")], [], {}, side_by_side)
    for op in ops:
        if op.verb in ("pop", "complete", "fail", "release") and op.queue != "other" and op.end < inf:
            own = [*story.stalls, *story.servers, *story.stops_before(op.who)]
            excused = sum(window.end - window.begin + GRACE for window in own if window.meets(op.begin, op.end))
            if op.end - op.begin - excused > ANSWER:
                text = f"{op.verb} of {op.who} took {op.end - op.begin:.1f} s ({op.name})"
                yield Violation("blocked", text, op.queue, at=op.begin)


def held_twice(name: str, claims: dict[int, list[Held]]) -> Iterator[Violation]:
    for id, each in claims.items():
        ordered = sorted(each, key=lambda held: held.op.end)
        for first, second in pairwise(ordered):
            if second.op.end < min(first.until, second.until):
                yield Violation("two", f"{id} by {first.op.name} and {second.op.name}", name, at=second.op.end)


def lost_early(name: str, claims: dict[int, list[Held]]) -> Iterator[Violation]:
    for id, each in claims.items():
        for held in each:
            op = held.finishing
            if op and id in op.lost and op.end < min(held.lost, held.op.begin + LEASE - CLOCKS):
                yield Violation("early", f"{id} of {held.op.name} in {op.name}", name, at=op.begin)


def missing(
    name: str, claims: dict[int, list[Held]], seeks: list[Op], pushes: dict[Any, Op], keeps: bool
) -> Iterator[Violation]:
    """After the last seek, what it asked for comes; and what a consumer has had since the one before is completed."""
    last = seeks[-1] if seeks else None
    before = seeks[-2].end if len(seeks) > 1 else -inf
    for id, push in pushes.items():
        mine = claims.get(id, [])
        asked = last is None or last.whom == "beginning" or push.begin > last.end
        since = last.begin if last and asked and push.begin < last.end else -inf
        if keeps and asked and not any(held.completed_after(since) for held in mine):
            words = f"{id} does not come, pushed by {push.name}, last seek {last}"
            yield Violation("missing", words, name, at=push.end)
        for held in mine:
            if held.op.begin <= before or (last and last.whom == "beginning" and held.op.begin < last.end):
                continue
            if not any(other.completed_after(held.op.begin) for other in mine):
                yield Violation("missing", f"{id} of {held.op.name} is never completed", name, at=held.op.end)


# -- the round -------------------------------------------------------------------------------------------------------


class TopicRound(Round):
    def _prepare(self) -> None:
        prepare(Client(self.setting, "prepare", ""))

    def _watch(self) -> None:
        """When the round winds down, note how much is left, until nothing is, or it has not become less for long."""
        client = Client(self.setting, "watch", "")
        while not client.board.quiet:
            sleep(0.1)
        least, patience = inf, Patience(PATIENCE)
        while True:
            with client.ledger.op("left") as note:
                found = [client.database.subscription(f"events/{name}").stats() for name in SUBSCRIPTIONS]
                rest = sum(each.ready + each.scheduled + each.blocked + each.in_progress for each in found)
                note.words["n"] = rest
            if rest < least:
                least, patience = rest, Patience(PATIENCE)
            elif patience.is_over():
                return
            if not rest:
                return
            sleep(0.2)

    def _start_all(self) -> None:
        self._steady = [self._start("drain", f"drain {n}") for n in range(2)]
        self._running = [self._start("consumer") for _ in range(self.mix.clients)]
        for role, (_, number) in ROLES.items():
            self._running += [self._start(role, spared=role == "seeker") for _ in range(number)]

    def _begin(self, role: str, who: str, seed: str) -> None:
        act = {"drain": drain, "consumer": consumer}.get(role) or ROLES[role][0]
        act(Client(self.theirs, who, seed))

    def _conclude(self) -> None:
        ledger = Ledger(self.folder, "conclude")
        for damage in self.ground.damages(self.setting.url, self.setting.schema):
            ledger.end(ledger.begin("damaged", text=damage))

    def _judge(self) -> Result:
        ops = read(self.folder)
        rest = [op.n for op in ops if op.verb == "left"][-1]
        broken = BROKEN if {"idle", "server"} & {*self.mix.kinds} else ()
        expected = (*EXPECTED, *broken)
        found = list(judge(ops, keep(self.mix) == "forever", rest, expected, self.ground.kind.side_by_side))
        found += [Violation(op.verb, op.text or op.whom, at=op.begin) for op in ops if op.verb in FAULTS]
        return Result(self.mix, self.folder, None, found, self._told(ops))

    def _told(self, ops: list[Op]) -> dict[str, int]:
        done = Counter(op.verb for op in ops if op.outcome == DONE)
        refused = Counter(op.error for op in ops if op.error)
        return {
            "pushed": sum(len(op.ids) for op in ops),
            "claims": sum(len(op.got) for op in ops),
            **{verb: done[verb] for verb in SHOWN},
            **{f"of {error}": count for error, count in sorted(refused.items())},
            **{f"{event}s": count for event, count in self.befell.items()},
        }
