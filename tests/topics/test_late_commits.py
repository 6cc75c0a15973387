"""Late commits: a message that becomes visible after later ones comes late, once, and nobody waits for it."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from tablequeue import Claim, Database, LeaseLost, NewMessage
from tablequeue.bulk import staging
from tablequeue.bulk.staging import Staged
from tablequeue.ext import context_of
from tablequeue.topic import Subscription, Topic
from tests.servers import KINDS, Kind, Place, only
from tests.support import at, counts, ids_of, refuses
from tests.topics import checks

pytestmark = pytest.mark.quick

STEPS = 250


@dataclass
class Transaction:
    """A producer's open transaction: the payloads that its commit makes visible, and those of open savepoints."""

    connection: sa.Connection
    payloads: list[str] = field(default_factory=list)
    savepoints: list[tuple[Any, int]] = field(default_factory=list)
    prepared: str | None = None


@dataclass
class Write:
    """A bulk write: what its tasks have staged, and the payloads that its publication makes visible."""

    name: str
    staged: list[Staged] = field(default_factory=list)
    payloads: list[str] = field(default_factory=list)


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
        staging.prepare(topic)
        self.writes: list[Write] = []
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
            end_prepared(self.place, end, transaction.prepared)
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
            transaction.prepared = f"{self.place.schema}_{self.chance.getrandbits(64)}"
            transaction.connection.exec_driver_sql(f"prepare transaction '{transaction.prepared}'")
            transaction.connection.rollback()  # of SQLAlchemy's own idea of a transaction

    def reserve(self) -> None:
        """Ids that are given and never used."""
        if self.kind.name == "postgresql":
            sequence = f"{self.place.table('events')}__ids"
            self.place.execute(f"select nextval('{sequence}') from generate_series(1, 3)")  # noqa: S608 (a name of ours)

    # -- bulk writes -------------------------------------------------------------------------------------------------

    def stage(self) -> None:
        """A task of a write ends; or one that is lost, and another attempt at its part will be published."""
        if self.open and not self.kind.side_by_side:
            return
        if len(self.writes) < 3:
            self.writes.append(Write(f"{self.chance.getrandbits(128):032x}"))
        write = self.chance.choice(self.writes)
        payloads, attempt, part = self.payloads(), f"{self.chance.getrandbits(128):032x}", len(write.staged)
        batch = pa.RecordBatch.from_pydict({"payload": payloads})
        staged = staging.stage(self.topic, write.name, attempt, part, [batch, batch.slice(0, 0)])
        if self.chance.random() < 0.8:
            write.staged.append(staged)
            write.payloads += payloads

    def publish(self) -> None:
        if self.writes and (self.kind.side_by_side or not self.open):
            write = self.writes.pop(self.chance.randrange(len(self.writes)))
            if self.chance.random() < 0.3:
                staging.unstage(self.topic, write.name)
            else:
                assert staging.publish(self.topic, write.name, write.staged) == len(write.payloads)
                self.committed += write.payloads

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
        # One claim of each message, the last: LeaseLost names messages, and an old claim of one is lost.
        some = [*{claim.id: claim for claim in some}.values()]
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
        steps += [self.prepare, self.reserve, self.stage, self.publish, self.consume, self.wait]
        weights = [4, 3, 2, 1, 1, 4, 1, 1, 3, 1, 12, 2]
        for _ in range(STEPS):
            self.chance.choices(steps, weights)[0]()

    def end_all(self) -> None:
        """End all transactions, and let each subscription complete the rest."""
        while self.open:
            self.finish(self.open[0], self.chance.random() < 0.7)
        while self.writes:
            self.publish()
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
                end_prepared(self.place, "rollback prepared", gid)

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


def end_prepared(place: Place, how: str, name: str) -> None:
    with place.sa_engine().connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"{how} '{name}'")


def check_positions(place: Place, kind: Kind, messages: int) -> None:
    """The positions are dense: each offset from 1 on has one message, each message has one, and no hole is left."""
    if kind.name == "sqlite":
        return
    table = place.table("events")
    ranges = place.execute(f"select first_offset, first_id, last_id from {table}__runs order by first_offset")  # noqa: S608
    next, ids = 0, list[int]()
    for first_offset, first_id, last_id in ranges:
        assert first_offset == next, "the positions are dense"
        next += last_id - first_id + 1
        ids += range(first_id, last_id + 1)
    assert next == messages + 1, "and begin at 1, after the empty run"
    stored = [row[0] for row in place.execute(f"select id from {table} order by id")]  # noqa: S608
    assert sorted(ids) == [0, *stored], "each message has one position"
    # MariaDB closes holes a minute after it saw them.
    assert kind.name != "postgresql" or checks.holes(place) == []


@pytest.mark.parametrize("seed", range(4))
def test_each_committed_message_is_completed_once(place: Place, kind: Kind, topic: Topic, seed: int) -> None:
    life = Interleaving(place, kind, topic, seed)
    try:
        life.run()
        life.end_all()
    finally:
        life.close()
    life.check()


# -- directed cases --------------------------------------------------------------------------------------------------

SIDE_BY_SIDE = only(*(kind.name for kind in KINDS if kind.side_by_side))


@SIDE_BY_SIDE
def test_a_transaction_that_is_open_over_many_commits(place: Place, topic: Topic, mail: Subscription) -> None:
    checks.check_a_late_commit_comes_late(place, topic, mail)


@SIDE_BY_SIDE
@pytest.mark.parametrize("number", [3, 5000], ids=["few", "many"])
def test_a_batch_that_is_committed_late(place: Place, topic: Topic, mail: Subscription, number: int) -> None:
    """Also one that has reserved its ids, as large ones do."""
    with place.sa_engine().connect() as connection:
        late = topic.push_many(["late"] * number, connection=connection)
        early = topic.push_many(["early"] * number)
        assert ids_of(mail.pop_many(2 * number)) == early
        connection.commit()
    batch = mail.pop_many(2 * number)
    assert ids_of(batch) == late
    mail.complete_many(batch)


@SIDE_BY_SIDE
def test_parts_of_what_was_in_flight(place: Place, kind: Kind, topic: Topic, mail: Subscription) -> None:
    """Several transactions end in another order than they began, and some ids of a hole are never used."""
    engine = place.sa_engine()
    opened = [engine.connect() for _ in range(5)]
    ids = [topic.push_many([*"abc"], connection=connection) for connection in opened]
    last = topic.push("last")
    assert ids_of(mail.pop_many(100)) == [last]
    for place_of, commits in ((2, True), (0, False), (4, True), (1, True), (3, False)):
        getattr(opened[place_of], "commit" if commits else "rollback")()
        opened[place_of].close()
        assert ids_of(mail.pop_many(100)) == (ids[place_of] if commits else [])
    topic.push("another")
    assert len(mail.pop_many(100)) == 1
    check_positions(place, kind, 11)


@SIDE_BY_SIDE
def test_savepoints(place: Place, topic: Topic, mail: Subscription) -> None:
    with place.sa_engine().connect() as connection:
        outer = topic.push("a", connection=connection)
        with connection.begin_nested():
            kept = topic.push("b", connection=connection)
            inner = connection.begin_nested()
            topic.push("c", connection=connection)
            inner.rollback()
        early = topic.push("early")
        assert ids_of(mail.pop_many(10)) == [early]
        last = topic.push("d", connection=connection)
        connection.commit()
    assert ids_of(mail.pop_many(10)) == [outer, kept, last]


@SIDE_BY_SIDE
def test_a_transaction_that_has_pushed_nothing_yet(place: Place, kind: Kind, topic: Topic, mail: Subscription) -> None:
    """It began before, and pushes after others: a hole is not its own."""
    with place.sa_engine().connect() as connection:
        connection.exec_driver_sql("select 1")
        topic.push("a")
        assert len(mail.pop_many(10)) == 1
        id = topic.push("b", connection=connection)
        topic.push("c")
        assert len(mail.pop_many(10)) == 1
        connection.commit()
    assert ids_of(mail.pop_many(10)) == [id]


@only("postgresql")
def test_holes_are_forgotten_when_nobody_can_fill_them(place: Place, topic: Topic, mail: Subscription) -> None:
    checks.check_holes_are_forgotten(place, topic, mail)


@only("postgresql")
@pytest.mark.parametrize("only_completing", [False, True])
def test_holes_are_forgotten_by_every_kind_of_pop(
    place: Place, topic: Topic, mail: Subscription, only_completing: bool
) -> None:
    engine = place.sa_engine()
    batch: list[Claim] = []
    for _ in range(20):
        with engine.connect() as connection:
            topic.push("never", connection=connection)
            connection.rollback()
        topic.push("x")
        batch = mail.pop_many(1, completing=batch) if only_completing else mail.pop_many(1)
        assert len(batch) == 1
    # A process looks at the oldest ones from time to time: as if that time had passed.
    context_of(mail).table.topic.next_sweep = 0.0  # type: ignore[union-attr]
    topic.push("x")
    mail.pop_many(1, completing=batch)
    assert len(checks.holes(place)) <= 1, "none but the last one"


@SIDE_BY_SIDE
def test_a_waiting_consumer_sees_a_late_commit_behind_many_holes(
    place: Place, topic: Topic, mail: Subscription
) -> None:
    engine = place.sa_engine()
    with engine.connect() as late, engine.connect() as other:
        id = topic.push("late", connection=late)
        for _ in range(150):
            topic.push("never", connection=other)
            other.rollback()
            topic.push("x")
            other.rollback()
        mail.complete_many(mail.pop_many(1000))
        late.commit()
    context_of(mail).table.topic.next_sweep = math.inf  # type: ignore[union-attr]
    assert context_of(mail).run(context_of(mail).reads.until_next, {"now": None}).seconds == 0
    context_of(mail).table.topic.next_sweep = 0  # type: ignore[union-attr]
    assert ids_of(mail.pop_many(10)) == [id]


@SIDE_BY_SIDE
def test_many_runs_in_one_claim(place: Place, topic: Topic, mail: Subscription) -> None:
    """5,000 runs of one message each, as rollbacks in between leave them."""
    with place.sa_engine().begin() as connection:
        topic.push_many(["x"] * 10_000, connection=connection)
        # As if every other one had been rolled back: 5,000 transactions would take their time.
        connection.exec_driver_sql(f"delete from {place.table('events')} where mod(id, 2) = 0")  # noqa: S608 (our name)
    ids = list(range(1, 10_000, 2))
    batch = mail.pop_many(10_000, now=at(0))
    assert ids_of(batch) == ids
    batch[7].fail("no", retry_in=0, now=at(0))
    mail.complete_many(batch[100:2000], now=at(0))
    assert batch[2000].extend(100, now=at(1)) == at(101)
    refuses(LeaseLost, batch[150].extend, 100)
    assert ids_of(mail.pop_many(10, now=at(2))) == [ids[7]]
    rest = [*batch[:7], *batch[8:100], *batch[2000:]]
    again = mail.pop_many(10_000, now=at(200))
    assert {claim.id for claim in again} == {ids[7], *ids_of(rest)}
    mail.complete_many(again, now=at(200))
    assert counts(mail) == {"finished": 5000}


@SIDE_BY_SIDE
def test_a_start_by_time_among_late_commits(place: Place, topic: Topic) -> None:
    """A message that was committed late has an older time than those before it: none of these may be passed."""
    checks.check_a_start_by_time_passes_nothing(place, topic)


@SIDE_BY_SIDE
def test_a_start_at_the_end_gets_what_is_committed_later(place: Place, topic: Topic, mail: Subscription) -> None:
    with place.sa_engine().connect() as connection:
        late = topic.push("late", connection=connection)
        topic.push("early")
        new = topic.subscribe("new", start="end")
        assert new.pop() is None
        connection.commit()
    assert ids_of(new.pop_many(10)) == [late]
    assert len(mail.pop_many(10)) == 2


@SIDE_BY_SIDE
def test_late_commits_of_an_ordered_subscription(place: Place, ordered: Subscription, db: Database) -> None:
    topic = db.topic("orders")
    with place.sa_engine().connect() as connection:
        late = topic.push("late", group="g", connection=connection)
        early = topic.push("early", group="g")
        (claim,) = ordered.pop_many(10)
        assert claim.id == early
        connection.commit()
        assert ordered.pop_many(10) == [], "its group has a message in progress"
    claim.complete()
    assert ids_of(ordered.pop_many(10)) == [late]
