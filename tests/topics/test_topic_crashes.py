"""Consumers, producers and servers of topics die: no acknowledged message is lost, and what is finished stays so."""

from __future__ import annotations

import os
import random
import secrets
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tablequeue import Consumer, LeaseLost
from tablequeue.errors import ConnectionLost, Unreachable
from tablequeue.topic import Subscription, Topic
from tests.crowd import answer, started
from tests.servers import KINDS, Kind, Place, Server
from tests.support import at, counts, ids_of
from tests.test_crashes import place_on
from tests.topics import work

pytestmark = pytest.mark.quick

# Messages of each producer between two deaths of the server, and the rounds.
PUSHES, ROUNDS = 150, 3


@pytest.mark.parametrize("completed", [0, 2])
def test_a_consumer_killed_between_pop_and_complete(
    place: Place, topic: Topic, mail: Subscription, completed: int
) -> None:
    ids = topic.push_many(map(str, range(6)))
    with started(1, work.hold_a_batch, lambda n: (place, 4, completed)) as (pipe,):
        assert answer(pipe) == ids[:4]
    assert ids_of(mail.pop_many(10)) == ids[4:], "it has them until its lease ends"
    later = at(1_000_000)
    again = mail.pop_many(10, now=later)
    assert sorted(ids_of(again)) == ids[completed:]
    assert {claim.attempt for claim in again} == {2}
    letters = [message.errors[0] for message in mail.peek(state="in_progress")]
    assert {error.error for error in letters} == {"lease expired"}
    mail.complete_many(again, now=later)
    assert counts(mail) == {"finished": 6}


def test_a_producer_killed_before_its_commit(place: Place, topic: Topic, mail: Subscription) -> None:
    first = topic.push("a")
    with started(1, work.push_and_never_commit, lambda n: (place, 300)) as (pipe,):
        answer(pipe)
    # The server may take a moment to notice that the client is dead; on SQLite its lock is gone with it.
    last = topic.push("b")
    assert ids_of(mail.pop_many(10)) == [first, last]


@pytest.fixture(scope="module", params=[kind for kind in KINDS if kind.server], ids=lambda kind: kind.name)
def own_kind(request: pytest.FixtureRequest) -> Kind:
    kind: Kind = request.param
    return kind


@pytest.fixture(scope="module")
def own_server(own_kind: Kind) -> Iterator[Server]:
    """A private server for this module."""
    assert own_kind.server
    manager = own_kind.server()
    if manager is None:
        refuse = pytest.fail if os.environ.get("CI") else pytest.skip
        refuse("The server is not installed.")
    with manager as server:
        yield server


class Life:
    """Threads that push, and consumers of two subscriptions, while the server dies and comes back."""

    NAMES = ("whole", "parts")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.topic = place.open().create_topic("events", payload="text")
        for name in self.NAMES:
            self.topic.subscribe(name, lease=3600, max_attempts=1000)
        self.producers = [place.open().topic("events") for _ in range(2)]
        self.consumers = [(name, place.open().subscription(f"events/{name}")) for name in self.NAMES * 2]
        self.pushed: list[str] = []
        self.unknown: set[str] = set()
        self.done: dict[str, Counter[str]] = {name: Counter() for name in self.NAMES}
        self.doubtful: dict[str, set[str]] = {name: set() for name in self.NAMES}
        self.up = threading.Event()
        self.over = threading.Event()
        self.steps = threading.Semaphore(0)
        self.up.set()

    def produce(self, number: int) -> None:
        for n in range(10**6):
            if self.over.is_set():
                return
            payloads = [f"{number}/{n}/{k}" for k in range(1 + n % 4)]
            try:
                self.producers[number].push_many(payloads)
                self.pushed += payloads
            except (ConnectionLost, Unreachable):
                self.unknown.update(payloads)
                self.up.wait()
            self.steps.release()

    def consume(self, name: str, subscription: Consumer, last: bool = False) -> None:
        while True:
            some: list[Any] = []
            try:
                now = at(1_000_000) if last else None
                batch = subscription.pop_many(7, now=now)
                if not batch and (last or self.over.is_set()):
                    return
                for some in [batch] if name == "whole" else [batch[:3], batch[3:]]:
                    subscription.complete_many(some, now=now)
                    self.done[name].update(claim.payload for claim in some)
                    some = []
            except LeaseLost as error:
                # The server died before the claim was on its disk: another consumer has them.
                self.done[name].update(claim.payload for claim in some if claim.id not in error.ids)
            except (ConnectionLost, Unreachable):
                self.doubtful[name].update(claim.payload for claim in some)
                if self.over.is_set() and not last:  # a server that did not come back has failed the test
                    return
                self.up.wait()


def test_a_server_killed_under_load(own_server: Server) -> None:
    """Pushed and delivered are the same for each subscription. What was told to be completed never comes again."""
    chance = random.Random(seed := secrets.randbits(32))
    print("seed", seed)
    with place_on(own_server) as place:
        life = Life(place)
        with ThreadPoolExecutor(6) as threads:
            calls = [threads.submit(life.produce, number) for number in range(2)]
            calls += [threads.submit(life.consume, *consumer) for consumer in life.consumers]
            try:
                for _ in range(ROUNDS):
                    for _ in range(chance.randint(PUSHES // 2, PUSHES)):
                        assert life.steps.acquire(timeout=60), "nobody does anything"
                    life.up.clear()
                    own_server.kill()
                    own_server.start()
                    life.up.set()
                for _ in range(PUSHES):
                    assert life.steps.acquire(timeout=60), "nobody does anything"
            finally:
                life.up.set()
                life.over.set()
            for call in calls:
                call.result(120)
        for name in life.NAMES:
            life.consume(name, place.open().subscription(f"events/{name}"), last=True)
            done = life.done[name]
            known = {*life.pushed}
            assert known <= {*done} | life.doubtful[name], "what was acknowledged is delivered"
            assert {*done} <= known | life.unknown
            twice = {payload for payload, times in done.items() if times > 1}
            assert not twice, "what was told to be completed never comes again"
        one, other = ({*life.done[name]} | life.doubtful[name] for name in life.NAMES)
        assert one ^ other <= life.doubtful["whole"] | life.doubtful["parts"]
        stored = place.open().topic("events").subscribe("all")
        payloads = Counter(claim.payload for claim in stored.pop_many(100_000))
        assert max(payloads.values()) == 1
        for name in life.NAMES:
            assert counts(place.open().subscription(f"events/{name}")) == {"finished": len(payloads)}
        assert {*life.pushed} <= {*payloads}
