"""Stress topics: `python -m tests.stress.topics --engine postgresql --seconds 30 --seed 1`.

Producers and consumers of a plain and an ordered subscription, which are killed and stopped; seeks, forced ones too,
and trims beside them; another topic that is dropped, created anew with other options, and renamed; and a queue with
limits. Every call is in a ledger outside the database, and at the end the ledgers are compared with what was promised:

- `two`: two consumers held a message at once;
- `early`: a lease was lost before its time, and no forced seek had ended it;
- `missing`: a message did not come, or what a consumer had and did not complete did not come again;
- `quick`, `many`: of a queue with limits more was claimed in some time, or in progress at once;
- `foreign`: a handle got messages of a topic that was created after the one that it was opened for;
- `error`: a call failed otherwise than the library says.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from tablequeue import Database, Rate, TablequeueError
from tests.servers import Place
from tests.stress.board import DRAIN, END, RUN, Board
from tests.stress.ground import DAMAGES, ground
from tests.stress.ledger import DONE, Got, Ledger, Op, read
from tests.stress.run import fork
from tests.stress.violation import Violation

SUBSCRIPTIONS = ("mail", "turns")
LEASE = 2.0
# Seconds that clocks of the database and of this machine may differ by: SQLite's has milliseconds.
CLOCKS = 0.05
# Seconds that a topic with a retention keeps its messages.
KEEP = 0.5
# The queue with limits: claims a second, claims at once, and messages in progress.
RATE = Rate(40, burst=5)
CONCURRENCY = 4
# Seconds in which the drain must empty the subscriptions.
PATIENCE = 40.0
# What a call may say when others change the same things.
EXPECTED = ("LeaseLost", "SeekRefused", "Locked", "Conflict", "QueueNotFound", "QueueDiffers", "")


@dataclass(frozen=True)
class Setting:
    url: str
    schema: str | None
    folder: Path
    seed: int

    @property
    def keep(self) -> Any:
        return KEEP if self.seed % 2 else "forever"

    def client(self, who: str) -> Client:
        return Client(self, who, Ledger(self.folder, who), Place(self.url, self.schema).open(who))


@dataclass
class Client:
    setting: Setting
    who: str
    ledger: Ledger
    database: Database

    def __post_init__(self) -> None:
        self.board = Board(self.setting.folder / "board", ())
        self.chance = random.Random(f"{self.setting.seed} {self.who}")

    def acts(self, phase: int = RUN) -> bool:
        return self.board.phase <= phase

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
    topic = client.database.create_topic("events", groups=True, keep=client.setting.keep)
    options: Any = {"max_attempts": 1_000_000, "lease": LEASE}
    topic.subscribe("mail", **options)
    topic.subscribe("turns", ordered=True, **options)
    limited = client.database.create_queue("limited", rate=RATE, concurrency=CONCURRENCY, **options)
    limited.push_many([payload(str(number)) for number in range(20_000)])


def producer(client: Client) -> None:
    topic = client.database.topic("events")
    number = 0
    while client.acts():
        number += 1
        client.attempt(client.push, topic, number)
        sleep(client.chance.expovariate(20))


def consumer(client: Client, phase: int = RUN) -> None:
    opened = {name: client.database.topic("events").subscription(name) for name in SUBSCRIPTIONS}
    while client.acts(phase):
        name = client.chance.choice(SUBSCRIPTIONS)
        client.attempt(consume, client, opened[name], name, phase == DRAIN)


def taker(client: Client) -> None:
    """Take all that the limits of a queue allow."""
    limited = client.database.queue("limited")
    while client.acts():
        client.attempt(take, client, limited)


def take(client: Client, limited: Any) -> None:
    if claims := client.pop(limited, "limited", client.chance.choice([1, 3, 10])):
        sleep(client.chance.choice([0, 0, 0.05]))
        client.finish(limited, "limited", "complete", claims)
    else:
        sleep(client.chance.choice([0, 0.01, 0.3]))


def drain(client: Client) -> None:
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
    """Seek and trim. One process: so its ledger has the order of the seeks."""
    topic = client.database.topic("events")
    while client.acts():
        name = client.chance.choice(SUBSCRIPTIONS)
        to, force = client.chance.choice(["beginning", "end"]), client.chance.random() < 0.5

        def seek(name: str = name, to: Any = to, force: bool = force) -> None:
            with client.ledger.op("seek", queue=name, text=to, by="force" if force else ""):
                topic.subscription(name).seek(to, force=force)

        def trim() -> None:
            with client.ledger.op("trim") as note:
                note.words["n"] = topic.trim()

        client.attempt(client.chance.choice([seek, trim, trim]))
        sleep(client.chance.expovariate(4))


def changer(client: Client) -> None:
    """Create a topic, push to it, rename it, and drop it, again and again."""
    epoch = 0
    while client.acts():
        epoch += 1

        def live(epoch: int = epoch) -> None:
            kind = client.chance.choice(["json", "text"])
            keep = client.chance.choice(["forever", "consumed", KEEP])
            with client.ledger.op("create"):
                topic = client.database.create_topic("other", payload=kind, keep=keep)  # type: ignore[arg-type]
                topic.subscribe("mail", lease=LEASE)
            with client.ledger.op("push"):
                topic.push_many([f"{epoch}"] * 20)
            for old, new in (("other", "another"), ("another", "other"))[: client.chance.choice([0, 2, 2])]:
                with client.ledger.op("rename"):
                    client.database.rename(old, new)
                topic.push_many([f"{epoch}"] * 5)
            sleep(client.chance.random() * 0.3)
            with client.ledger.op("drop"):
                client.database.topic("other").drop()

        client.attempt(live)


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


def left(client: Client) -> int:
    """Return how many messages wait or are in progress."""
    found = [client.database.queue(f"events/{name}").stats() for name in SUBSCRIPTIONS]
    return sum(each.ready + each.scheduled + each.blocked + each.in_progress for each in found)


# -- the verdict -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Held:
    op: Op
    got: Got
    finishing: Op | None
    lost: float
    """When a forced seek may have ended the lease."""

    @property
    def until(self) -> float:
        """The time until which its consumer surely held the message."""
        begin = self.finishing.begin if self.finishing else inf
        return min(begin, self.lost, self.op.begin + LEASE - CLOCKS)

    def completed_after(self, time: float) -> bool:
        """Whether it was completed, or may have been by a consumer that was killed then."""
        op = self.finishing
        return op is not None and op.verb == "complete" and self.got.id not in op.lost and op.end > time


def claims_of(ops: list[Op], name: str, seeks: list[Op]) -> dict[int, list[Held]]:
    finishing = {key: op for op in ops if op.queue == name and op.verb != "pop" for key in op.held}
    claims: dict[int, list[Held]] = defaultdict(list)
    for op in ops:
        if op.queue == name and op.verb == "pop" and op.outcome == DONE:
            lost = min((seek.begin for seek in seeks if seek.by and seek.end > op.begin), default=inf)
            for got in op.got:
                claims[got.id].append(Held(op, got, finishing.get((got.id, got.token)), lost))
    return claims


def judge(ops: list[Op], keeps: bool, rest: int) -> Iterator[Violation]:
    for op in ops:
        if op.outcome not in (DONE, "pending") and op.error not in EXPECTED:
            yield Violation("error", f"{op.verb}: {op.error}: {op.text}", op.queue, at=op.begin)
        if op.queue == "other" and op.outcome == DONE and len({*op.text.split()}) > 1:
            yield Violation("foreign", f"{op.name}: {op.text}", op.queue, at=op.begin)
    if rest:
        yield Violation("missing", f"{rest} messages are left")
    pushes = {id: op for op in ops if op.verb == "push" and op.outcome == DONE for id in op.ids if op.new}
    yield from beyond_the_limits(claims_of(ops, "limited", []))
    for name in SUBSCRIPTIONS:
        seeks = [op for op in ops if op.verb == "seek" and op.queue == name and op.outcome == DONE]
        claims = claims_of(ops, name, [op for op in ops if op.verb == "seek" and op.queue == name])
        yield from held_twice(name, claims)
        yield from lost_early(name, claims)
        yield from missing(name, claims, seeks, pushes, keeps)


def beyond_the_limits(claims: dict[int, list[Held]]) -> Iterator[Violation]:
    """Count the claims that were surely made between two moments, and the messages that were surely held at one."""
    held = sorted((held for each in claims.values() for held in each), key=lambda held: held.op.begin)
    for place, first in enumerate(held):
        ends = sorted(other.op.end for other in held[place:])
        for number, end in enumerate(ends, 1):
            allowed = RATE.burst + 1 + (end - first.op.begin + CLOCKS) * RATE.number / RATE.per
            if number > allowed:
                yield Violation("quick", f"{number} claims in {end - first.op.begin:.3f} s", "limited", at=end)
                return
        at = first.op.end
        at_once = [other for other in held if other.op.end <= at < other.until]
        if len(at_once) > CONCURRENCY:
            yield Violation("many", f"{len(at_once)} in progress", "limited", at=at)
            return


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
        asked = last is None or last.text == "beginning" or push.begin > last.end
        since = last.begin if last and asked and push.begin < last.end else -inf
        if keeps and asked and not any(held.completed_after(since) for held in mine):
            words = f"{id} does not come, pushed by {push.name}, last seek {last}"
            yield Violation("missing", words, name, at=push.end)
        for held in mine:
            if held.op.begin <= before or (last and last.text == "beginning" and held.op.begin < last.end):
                continue
            if not any(other.completed_after(held.op.begin) for other in mine):
                yield Violation("missing", f"{id} of {held.op.name} is never completed", name, at=held.op.end)


# -- the run ---------------------------------------------------------------------------------------------------------


def play(setting: Setting, seconds: float) -> list[Violation]:
    board = Board(setting.folder / "board", ())
    chance = random.Random(setting.seed)
    number = 0

    def start(role: Callable[[Client], None], who: str = "") -> int:
        nonlocal number
        number += 1
        name = f"{role.__name__}{who}{number}"
        return fork(lambda: role(setting.client(name)))

    os.waitpid(start(prepare), 0)
    others = [start(producer), start(producer), start(seeker), start(changer), start(follower), start(follower)]
    roles = [consumer, consumer, consumer, consumer, taker, taker, taker]
    victims = [start(role) for role in roles]
    until = monotonic() + seconds
    while monotonic() < until:
        sleep(chance.random())
        place = chance.randrange(len(victims))
        if chance.random() < 0.5:
            os.kill(victims[place], signal.SIGKILL)
            os.waitpid(victims[place], 0)
            victims[place] = start(roles[place])
        else:
            os.kill(victims[place], signal.SIGSTOP)
            sleep(chance.choice([0.05, 0.3, 1.0]))
            os.kill(victims[place], signal.SIGCONT)
    board.phase = DRAIN
    for pid in (*others, *victims):
        os.waitpid(pid, 0)
    drains = [start(drain), start(drain)]
    looks = setting.client("look")
    deadline = monotonic() + PATIENCE
    while (rest := left(looks)) and monotonic() < deadline:
        sleep(0.2)
    board.phase = END
    for pid in drains:
        os.waitpid(pid, 0)
    ops = read(setting.folder)
    shown = {
        verb: sum(op.verb == verb and op.outcome == DONE for op in ops) for verb in ("push", "pop", "seek", "trim")
    }
    shown |= {verb: sum(op.verb == verb and op.outcome == DONE for op in ops) for verb in ("create", "rename", "drop")}
    print("  " + ", ".join(f"{count} {verb}" for verb, count in shown.items()), flush=True)
    return list(judge(ops, setting.keep == "forever", rest))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stress.topics", description=__doc__)
    parser.add_argument("--engine", choices=sorted(DAMAGES), default="sqlite")
    parser.add_argument("--seconds", type=float, default=20, help="of each round")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1, help="of the first round; odd ones have a retention")
    parser.add_argument("--url", help="of a server that is there; else one is made for the run")
    options = parser.parse_args(arguments)
    found = 0
    with ground(options.engine, options.url) as there:
        for seed in range(options.seed, options.seed + options.rounds):
            folder = Path(tempfile.mkdtemp(prefix="tablequeue-topics-"))
            print(f"{options.engine}, seed {seed}, ledgers in {folder}", flush=True)
            violations = play(Setting(*there.place(folder), folder, seed), options.seconds)
            for violation in violations[:20]:
                print(f"  {violation}")
            print(f"  {len(violations)} violations", flush=True)
            found += len(violations)
            if not violations:
                shutil.rmtree(folder)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
