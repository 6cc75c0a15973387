"""Late commits: a message that becomes visible after later ones comes late, once, and nobody waits for it."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import Claim, Database, LeaseLost, NewMessage
from tablequeue.topic import Subscription, Topic
from tests.servers import Kind, Place
from tests.support import START, at, counts, ids_of
from tests.topics import checks
from tests.topics.engines import only

STEPS = 250


@dataclass
class Transaction:
    """A producer's open transaction: the payloads that its commit makes visible, and those of open savepoints."""

    connection: sa.Connection
    payloads: list[str] = field(default_factory=list)
    savepoints: list[tuple[Any, int]] = field(default_factory=list)
    prepared: str | None = None


class Interleaving:
    """Random steps of producers and subscriptions. What was committed is compared with what was completed."""

    def __init__(self, place: Place, kind: Kind, topic: Topic, seed: int) -> None:
        self.chance = random.Random(seed)
        self.place, self.kind, self.topic = place, kind, topic
        self.subscriptions = [
            topic.subscribe("whole", max_attempts=1000),
            topic.subscribe("parts", max_attempts=1000),
            topic.subscribe("slow", max_attempts=1000),
        ]
        self.engine = place.sa_engine()
        # One writer at a time: a second open transaction would wait for the first.
        self.most = 4 if kind.side_by_side else 1
        self.open: list[Transaction] = []
        self.committed: list[str] = []
        self.held: dict[str, list[Claim]] = {each.name: [] for each in self.subscriptions}
        self.done: dict[str, list[str]] = {each.name: [] for each in self.subscriptions}
        self.seconds = 0
        self.number = 0

    # -- producers -----------------------------------------------------------------------------------------------------

    def payloads(self) -> list[str]:
        n = self.chance.choice([1, 1, 1, 3, 8, 120])
        self.number += n
        return [f"m{self.number - k}" for k in range(n)]

    def push(self, connection: Any = None) -> list[str]:
        payloads = self.payloads()
        options: dict[str, Any] = {"connection": connection, "now": at(self.seconds)}
        if len(payloads) == 1:
            self.topic.push(payloads[0], **options)
        elif self.chance.random() < 0.3:
            self.topic.push_many([NewMessage(payload, group="g") for payload in payloads], **options)
        else:
            self.topic.push_many(payloads, **options)
        return payloads

    def push_at_once(self) -> None:
        if self.kind.side_by_side or not self.open:
            self.committed += self.push()

    def begin(self) -> None:
        if len(self.open) < self.most:
            transaction = Transaction(self.engine.connect())
            self.open.append(transaction)
            transaction.payloads += self.push(transaction.connection)

    def push_within(self) -> None:
        for transaction in self.one_open():
            transaction.payloads += self.push(transaction.connection)

    def savepoint(self) -> None:
        for transaction in self.one_open():
            transaction.savepoints.append((transaction.connection.begin_nested(), len(transaction.payloads)))
            transaction.payloads += self.push(transaction.connection)

    def end_savepoint(self) -> None:
        for transaction in self.one_open():
            if transaction.savepoints:
                savepoint, before = transaction.savepoints.pop()
                if self.chance.random() < 0.5:
                    savepoint.rollback()
                    del transaction.payloads[before:]
                else:
                    savepoint.commit()

    def one_open(self) -> list[Transaction]:
        return [each for each in [self.chance.choice(self.open)] if not each.prepared] if self.open else []

    def end(self) -> None:
        # An old one rarely: some are open over many later commits.
        if self.open:
            self.finish(self.chance.choice([*self.open[1:], *self.open]), self.chance.random() < 0.6)

    def finish(self, transaction: Transaction, commit: bool) -> None:
        self.open.remove(transaction)
        if transaction.prepared:
            end = "commit prepared" if commit else "rollback prepared"
            self.place.execute(f"{end} '{transaction.prepared}'")
        elif commit:
            transaction.connection.commit()
        else:
            transaction.connection.rollback()
        transaction.connection.close()
        if commit:
            self.committed += transaction.payloads

    def prepare(self) -> None:
        if self.kind.name != "postgresql":
            return
        for transaction in self.one_open():
            transaction.prepared = f"{self.place.schema}_{self.number}"
            transaction.connection.exec_driver_sql(f"prepare transaction '{transaction.prepared}'")
            transaction.connection.rollback()  # of SQLAlchemy's own idea of a transaction

    def reserve(self) -> None:
        """Ids that are given and never used."""
        if self.kind.name == "postgresql":
            self.place.execute(f"select nextval('{self.place.table('events')}__ids') from generate_series(1, 3)")

    # -- consumers -----------------------------------------------------------------------------------------------------

    def consume(self) -> None:
        subscription = self.chance.choice(self.subscriptions)
        held = self.held[subscription.name]
        if self.open and not self.kind.side_by_side:
            return
        if held and self.chance.random() < 0.7:
            self.handle(subscription, held)
        else:
            n = self.chance.choice([1, 2, 7, 50, 1000])
            lease = self.chance.choice([5, 1000])
            batch = subscription.pop_many(n, lease=lease, now=at(self.seconds))
            assert len({claim.token for claim in batch}) <= 1
            held += batch

    def handle(self, subscription: Subscription, held: list[Claim]) -> None:
        now = at(self.seconds)
        some = held[:] if self.chance.random() < 0.5 else self.chance.sample(held, self.chance.randint(1, len(held)))
        for claim in some:
            held.remove(claim)
        act = self.chance.choices(["complete", "rolled back", "fail", "release", "die", "pop"], [6, 1, 1, 1, 1, 3])[0]
        if act == "complete":
            self.complete(subscription, some)
        elif act == "rolled back":
            with self.engine.connect() as connection:
                self.lost(lambda: subscription.complete_many(some, connection=connection, now=now))
                connection.rollback()
            held += some
        elif act == "release":
            self.lost(lambda: subscription.release_many(some, delay=self.chance.choice([0, 3]), now=now))
        elif act == "fail":
            for claim in some[:5]:
                self.lost(lambda claim=claim: claim.fail("no", retry_in=self.chance.choice([0, 3]), now=now))
        elif act == "pop":
            lost: tuple[int, ...] = ()
            try:
                held += subscription.pop_many(10, completing=some, now=now)
            except LeaseLost as error:
                lost = error.ids
            self.note(subscription, some, lost)

    def complete(self, subscription: Subscription, claims: list[Claim]) -> None:
        lost = self.lost(lambda: subscription.complete_many(claims, now=at(self.seconds)))
        self.note(subscription, claims, lost)

    def lost(self, finish: Any) -> tuple[int, ...]:
        try:
            finish()
        except LeaseLost as error:
            return error.ids
        return ()

    def note(self, subscription: Subscription, claims: list[Claim], lost: tuple[int, ...]) -> None:
        self.done[subscription.name] += [claim.payload for claim in claims if claim.id not in lost]

    def wait(self) -> None:
        self.seconds += self.chance.choice([1, 6])

    def run(self) -> None:
        steps = [self.push_at_once, self.begin, self.push_within, self.savepoint, self.end_savepoint, self.end]
        weights = [4, 3, 2, 1, 1, 4]
        for _ in range(STEPS):
            self.chance.choices(
                [*steps, self.prepare, self.reserve, self.consume, self.wait], [*weights, 1, 1, 12, 2]
            )[0]()

    def end_all(self) -> None:
        """End all transactions, and let each subscription complete the rest."""
        while self.open:
            self.finish(self.open[0], self.chance.random() < 0.7)
        self.seconds += 10_000
        for each in self.subscriptions:
            while batch := each.pop_many(1000, now=at(self.seconds)):
                self.complete(each, batch)

    def close(self) -> None:
        """End what a failure has left open."""
        for transaction in self.open:
            transaction.connection.close()
        if self.kind.name == "postgresql":
            gids = "select gid from pg_prepared_xacts where starts_with(gid, %(schema)s)"
            for (gid,) in self.place.execute(gids, {"schema": self.place.schema}):
                self.place.execute(f"rollback prepared '{gid}'")

    def check(self) -> None:
        expected = Counter(self.committed)
        assert max(expected.values()) == 1
        for name, payloads in self.done.items():
            done = Counter(payloads)
            assert not expected - done, f"{name}: some are lost: {expected - done}"
            assert not done - expected, f"{name}: some are completed twice, or were never committed: {done - expected}"
        for each in self.subscriptions:
            assert counts(each) == {"finished": len(self.committed)}
        check_positions(self.place, self.kind, len(self.committed))


def check_positions(place: Place, kind: Kind, messages: int) -> None:
    """The positions are dense: each offset from 1 on has one message, each message has one, and no hole is left."""
    if kind.name == "sqlite":
        return
    table = place.table("events")
    ranges = place.execute(f"select first_offset, first_id, last_id from {table}__runs order by first_offset")  # noqa: S608
    next, ids = 0, []
    for first_offset, first_id, last_id in ranges:
        assert first_offset == next, "the positions are dense"
        next += last_id - first_id + 1
        ids += range(first_id, last_id + 1)
    assert next == messages + 1, "and begin at 1, after the empty run"
    stored = [row[0] for row in place.execute(f"select id from {table} order by id")]  # noqa: S608
    assert sorted(ids) == [0, *stored], "each message has one position"
    assert holes(place) == []


def holes(place: Place) -> list[tuple[int, int]]:
    table = place.table("events")
    rows = place.execute(f"select first_id, last_id from {table}__holes order by first_id")  # noqa: S608
    return [(row[0], row[1]) for row in rows]


@pytest.mark.parametrize("seed", range(6))
def test_each_committed_message_is_completed_once(place: Place, kind: Kind, topic: Topic, seed: int) -> None:
    life = Interleaving(place, kind, topic, seed)
    try:
        life.run()
        life.end_all()
    finally:
        life.close()
    life.check()
