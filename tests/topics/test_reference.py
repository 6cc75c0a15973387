"""Random lives of a subscription beside a reference: no message has two holders, none vanishes, none is left out."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tablequeue import Backoff, Claim, LeaseLost
from tablequeue.errors import SeekRefused
from tablequeue.ext import context_of
from tablequeue.verbs import topics
from tests.nightly import by_night
from tests.servers import Place
from tests.support import at, counts
from tests.topics.reference import HELD, WAITING, Reference

pytestmark = pytest.mark.quick

KEEP = 400
STEPS = 60
KEEPS: dict[str, Any] = {"forever": "forever", "consumed": "consumed", "seconds": KEEP}


class Life:
    """A subscription with two consumers, and its reference."""

    def __init__(self, place: Place, seed: int, ordered: bool, keep: Any) -> None:
        self.random = random.Random(seed)
        self.database = place.open()
        self.keep = keep
        self.topic = self.database.create_topic("events", payload="text", groups=True, keep=keep)
        options: dict[str, Any] = {"max_attempts": 3, "backoff": Backoff(base=10, jitter=0)}
        self.topic.subscribe("mail", ordered=ordered, **options)
        self.consumers = [place.open().topic("events").subscription("mail") for _ in range(2)]
        self.reference = Reference(ordered, 3)
        self.ids: list[int] = []
        self.claims: dict[int, Claim] = {}
        self.lost: list[Claim] = []
        self.now = 0.0
        self.story: list[str] = []

    def step(self) -> None:
        self.now += self.random.choice((0, 1, 5, 30))
        actions = (
            self.push,
            self.pop,
            self.pop,
            self.finish,
            self.finish,
            self.finish,
            self.lose,
            self.seek,
            self.trim,
        )
        action = self.random.choice(actions)
        action(self.random.choice(self.consumers))
        self.check()

    def note_lost(self) -> None:
        """Set the claims aside whose lease the reference has ended."""
        ended = [message for message in self.claims if self.reference.where[message] != HELD]
        self.lost += [self.claims.pop(message) for message in ended]

    def say(self, *words: Any) -> None:
        self.story.append(f"{self.now:g}: " + " ".join(map(str, words)))

    def check(self) -> None:
        found = counts(self.consumers[0], now=at(self.now))
        waiting = sum(found.get(state, 0) for state in ("ready", "scheduled", "blocked"))
        shown = {"waiting": waiting, "in_progress": found.get("in_progress", 0), "dead": found.get("dead", 0)}
        assert shown == self.reference.counts(), self.told()

    def told(self) -> str:
        return "\n".join([*self.story, str(self.reference)])

    # -- actions -----------------------------------------------------------------------------------------------------

    def push(self, mail: Any) -> None:
        for _ in range(self.random.randint(1, 6)):
            group = self.random.choice("abc")
            self.ids.append(self.topic.push("x", group=group, now=at(self.now)))
            self.reference.push(self.now, group)
        self.say("push, now", len(self.ids))

    def pop(self, mail: Any) -> None:
        n, lease = self.random.randint(1, 5), self.random.choice((10, 100, 2_000, 2_000))
        self.reference.sweep(self.now)
        self.note_lost()
        expected = self.reference.claimable(self.now, n)
        batch = mail.pop_many(n, lease=lease, now=at(self.now))
        got = [self.ids.index(claim.id) for claim in batch]
        self.say("pop", n, got)
        for message in got:
            assert self.reference.holder(message) is None, f"two holders of {message}\n{self.told()}"
        assert got == expected, self.told()
        self.reference.claim(got, self.now + lease)
        assert [claim.attempt for claim in batch] == [self.reference.attempts[one] for one in got], self.told()
        self.claims |= dict(zip(got, batch, strict=True))

    def finish(self, mail: Any) -> None:
        if not self.claims:
            return
        message = self.random.choice([*self.claims])
        claim, verb = self.claims.pop(message), self.random.choice(("complete", "fail", "fail", "release"))
        self.say(verb, message)
        now = at(self.now)
        if verb == "complete":
            claim.complete(now=now)
            self.reference.finish(message, "done")
        elif verb == "release":
            claim.release(now=now)
            self.reference.finish(message, "apart")
            self.reference.attempts[message] -= 1
            self.reference.due[message] = self.now
        else:
            delay = self.random.choice((0, 20))
            claim.fail("no", retry_in=delay, now=now)
            self.reference.finish(message, "apart")
            self.reference.leave(message, self.now + delay)

    def lose(self, mail: Any) -> None:
        """Finish under a lease that is lost."""
        if self.lost:
            claim = self.lost.pop()
            with pytest.raises(LeaseLost):
                claim.complete(now=at(self.now))

    def seek(self, mail: Any) -> None:
        force = self.random.random() < 0.5
        times = [time for time, _ in self.reference.pushed]
        to: Any = self.random.choice(("beginning", "end", *({*times})))
        if to == "beginning":
            place = self.reference.first
        elif to == "end":
            place = len(times)
        else:
            place = max(self.reference.first, times.index(to))
        self.say("seek", to, place, force)
        busy = any(where == HELD for where in self.reference.where)
        try:
            mail.seek(at(to) if isinstance(to, float) else to, force=force)
        except SeekRefused:
            assert (busy, force) == (True, False), self.told()
        else:
            assert force or not busy, self.told()
            self.reference.seek(place, self.now)
            self.note_lost()

    def trim(self, mail: Any) -> None:
        if self.keep == "forever":
            return
        self.now += KEEP / 2
        self.topic.trim(now=at(self.now))
        ranges = [held for held in self.reference.held if not held.apart and held.until <= self.now]
        self.reference.expire(self.now, ranges)
        self.note_lost()
        oldest = self.now - (3600 if self.keep == "consumed" else KEEP)
        young = sum(time < oldest for time, _ in self.reference.pushed)
        needed = self.reference.needed(young, self.keep == "consumed")
        first = topics.bounds(context_of(self.topic)).first - 1
        self.say("trim", first, "needed", needed)
        assert first <= max(needed, self.reference.first), self.told()
        self.reference.trim(first)

    def drain(self) -> None:
        """Finish all that is held, and then all that is left: each message comes, and each once."""
        for message, claim in self.claims.items():
            claim.complete(now=at(self.now))
            self.reference.finish(message, "done")
        self.claims.clear()
        self.now += 10_000
        left = {message for message, where in enumerate(self.reference.where) if where in WAITING}
        while batch := self.consumers[0].pop_many(10, now=at(self.now)):
            for claim in batch:
                message = self.ids.index(claim.id)
                assert message in left, f"{message} comes\n{self.told()}"
                left.remove(message)
                claim.complete(now=at(self.now))
        assert not left, f"{left} do not come\n{self.told()}"


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("ordered", [False, True], ids=["plain", "ordered"])
@pytest.mark.parametrize("seed", by_night(range(4), lambda seed: seed < 2))
def test_a_subscription_does_as_the_reference(place: Place, seed: int, ordered: bool, keep: str) -> None:
    life = Life(place, seed, ordered, KEEPS[keep])
    for _ in range(STEPS):
        life.step()
    life.drain()
