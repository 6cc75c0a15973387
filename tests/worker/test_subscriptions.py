"""Workers at subscriptions: messages come in ranges, which are completed, extended and released as such."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Event
from time import monotonic
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest

from tablequeue import Backoff, Claim, Database, Subscription, Topic
from tablequeue.errors import BadInput
from tablequeue.ext import waiter_of
from tablequeue.worker import Handler, Worker, completer
from tablequeue.worker.fetcher import Fetcher
from tablequeue.worker.heartbeat import Heartbeat
from tablequeue.worker.pool import Assignment, SharedLease
from tablequeue.worker.schedule import Schedule, push_due
from tests.servers import KINDS, Kind, Place, only
from tests.support import counts, found, refuses
from tests.worker import handlers
from tests.worker.support import PATIENCE, until, working
from tests.worker.test_schedule import hours
from tests.worker.test_worker import CONSUMERS

MAIL = "events/mail"


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    one: Kind = request.param
    return one


@pytest.fixture
def events(db: Database) -> Topic:
    return db.create_topic("events", payload="text")


@pytest.fixture
def mail(events: Topic) -> Subscription:
    return events.subscribe("mail", max_attempts=3, backoff=Backoff(base=500, cap=500))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages of a range wait for each other, however long the machine takes."""
    monkeypatch.setattr(completer, "GATHERING", 10 * PATIENCE)


def of(function: Callable[..., Any], **options: Any) -> Worker:
    worker = Worker(maximum=options.pop("maximum", 4), shutdown_timeout=PATIENCE)
    worker.add(Handler(MAIL, function, **options))
    return worker


class Calls(NamedTuple):
    """The ids of the messages of each pop, and of each completion."""

    popped: list[set[int]]
    completed: list[set[int]]

    def are_whole(self) -> bool:
        """Whether each completion was one of whole pops."""
        wholes = [set().union(*(one for one in self.popped if one & some)) for some in self.completed]
        return wholes == self.completed


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    pop_many, complete_many, calls = Subscription.pop_many, Subscription.complete_many, Calls([], [])

    def popping(self: Subscription, n: int, **options: Any) -> list[Claim]:
        claims = pop_many(self, n, **options)
        calls.popped.append({claim.id for claim in claims})
        return claims

    def completing(self: Subscription, messages: Iterable[Claim], **options: Any) -> None:
        messages = list(messages)
        calls.completed.append({claim.id for claim in messages})
        complete_many(self, messages, **options)

    monkeypatch.setattr(Subscription, "pop_many", popping)
    monkeypatch.setattr(Subscription, "complete_many", completing)
    return calls


@pytest.mark.parametrize(
    ("kind", "consumers"),
    [(kind, one) for kind in KINDS for one in CONSUMERS if kind.name == "sqlite" or one != "processes"],
    ids=lambda one: getattr(one, "name", one),
)
def test_each_message_becomes_what_its_handler_says(
    db: Database, events: Topic, mail: Subscription, consumers: str
) -> None:
    words = ["done", "value", "retry", "bury", "snooze", "raise", "exit", "finish"]
    ids = dict(zip(words, events.push_many(words), strict=True))
    options, by_payload, _ = CONSUMERS[consumers]
    assert of(by_payload, **options).run(db, drain=True) == {"completed": 2, "scheduled": 3, "dead": 1, "snoozed": 1}
    assert counts(mail) == {"finished": 3, "scheduled": 4, "dead": 1}
    assert found(mail, ids["retry"]).errors[0].error == "not yet"
    assert found(mail, ids["snooze"]).attempts == 0
    assert "handlers.py" in found(mail, ids["raise"]).errors[0].error


@pytest.mark.parametrize("batch", [None, 30])
@pytest.mark.parametrize("consumers", ["threads", "tasks"])
def test_ranges_are_completed_whole(
    db: Database, events: Topic, mail: Subscription, patient: None, calls: Calls, consumers: str, batch: int | None
) -> None:
    """Though each message, or each batch, ends by itself."""
    ids = events.push_many(map(str, range(500)))
    seen: list[int] = []

    def note(given: Claim | list[Claim]) -> None:
        seen.extend(claim.id for claim in (given if isinstance(given, list) else [given]))

    async def note_async(given: Claim | list[Claim]) -> None:
        note(given)

    handle = note_async if consumers == "tasks" else note
    assert of(handle, batch=batch).run(db, drain=True) == {"completed": 500}
    assert sorted(seen) == ids
    assert counts(mail) == {"finished": 500}
    assert calls.are_whole()
    assert max(map(len, calls.popped)) > 1


def test_a_slow_message_holds_up_no_other(db: Database, events: Topic, mail: Subscription) -> None:
    """The completed messages of its range are written while it is still handled."""
    events.push_many(["slow", *map(str, range(50))])
    go = Event()

    def handle(message: Claim) -> None:
        if message.payload == "slow":
            assert go.wait(PATIENCE)

    with working(of(handle), db):
        until(lambda: counts(mail) == {"in_progress": 1, "finished": 50}, "all others are finished")
        go.set()
        until(lambda: counts(mail) == {"finished": 51}, "that one too")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_worker_that_stops_leaves_nothing_in_progress(
    db: Database, events: Topic, mail: Subscription, asynchronous: bool
) -> None:
    """It stops in the middle of a range: what no handler has begun is ready again, and its attempt does not count."""
    ids = events.push_many(map(str, range(300)))
    seen: list[int] = []

    def handle(message: Claim) -> None:
        seen.append(message.id)
        if message.payload == "100":
            worker.stop()

    async def handle_async(message: Claim) -> None:
        handle(message)

    worker = of(handle_async if asynchronous else handle, maximum=1)
    done = worker.run(db)["completed"]
    assert len(seen) == len({*seen}) == done >= 101
    assert counts(mail) == {"finished": done, "ready": 300 - done} or done == 300
    rest = [claim for _ in range(10) for claim in mail.pop_many(300)]
    assert sorted([*seen, *(claim.id for claim in rest)]) == ids
    assert {claim.attempt for claim in rest} <= {1}
    mail.complete_many(rest)
    assert counts(mail) == {"finished": 300}


@only("sqlite", "postgresql")
def test_messages_that_wait_for_a_consumer_keep_their_lease(db: Database, events: Topic) -> None:
    mail = events.subscribe("short", lease=0.5)
    events.push_many(map(str, range(20)))
    seen: list[tuple[str, int]] = []

    def handle(message: Claim) -> None:
        if message.payload == "1":
            with waiter_of(mail) as waiter:
                waiter.wait(4 * mail.definition.lease)  # ends when a lease expires
            assert mail.pop() is None, "another consumer gets what nobody holds"
        seen.append((message.payload, message.attempt))

    worker = Worker(maximum=1)
    worker.handler("events/short")(handle)
    assert worker.run(db, drain=True) == {"completed": 20}
    assert sorted(seen) == sorted((str(number), 1) for number in range(20))


class Extensions(list[list[int]]):
    """The ids of the messages of each call that extends leases, or was to."""


@pytest.fixture
def extensions(monkeypatch: pytest.MonkeyPatch) -> Extensions:
    extend, tried = Subscription.extend_many, Extensions()

    def noting(self: Subscription, messages: Iterable[Claim], *args: Any, **options: Any) -> Any:
        claims = list(messages)
        tried.append([claim.id for claim in claims])
        return extend(self, claims, *args, **options)

    monkeypatch.setattr(Subscription, "extend_many", noting)
    return tried


def beat(mail: Subscription, assignments: list[Assignment]) -> None:
    Heartbeat([])._extend(cast(Fetcher, SimpleNamespace(queue=mail)), assignments)


def assigned(claims: list[Claim]) -> list[Assignment]:
    whole = SharedLease(len(claims))
    return [Assignment([claim], 0.0, 0.0, whole) for claim in claims]


def test_a_range_is_extended_once(events: Topic, mail: Subscription, extensions: Extensions) -> None:
    events.push_many([*"abc"])
    assignments = assigned(mail.pop_many(3))
    now = monotonic()
    beat(mail, assignments)
    assert len(extensions) == 1
    assert all(assignment.leased_at >= now for assignment in assignments)


def test_a_range_of_which_a_handler_has_finished_a_message_is_extended(
    events: Topic, mail: Subscription, extensions: Extensions
) -> None:
    events.push_many([*"abc"])
    claims = mail.pop_many(3)
    assignments = assigned(claims)
    for assignment in assignments:
        assignment.began_at = 0.0
    claims[0].complete()
    beat(mail, assignments)
    assert extensions == [[claim.id for claim in claims]]
    assert [assignment.leased_at > 0 for assignment in assignments] == [False, True, True]
    assert [assignment.lost for assignment in assignments] == [{claims[0].id}, set(), set()]


def test_of_a_lost_range_all_messages_are_lost(events: Topic, mail: Subscription, extensions: Extensions) -> None:
    events.push_many([*"abc"])
    claims = mail.pop_many(3)
    assignments = assigned(claims)
    mail.release_many(claims)
    beat(mail, assignments)
    assert extensions == [[claim.id for claim in claims]]
    assert [assignment.lost for assignment in assignments] == [{claim.id} for claim in claims]


def test_a_push_wakes(db: Database, place: Place, events: Topic, mail: Subscription) -> None:
    handled = Event()
    worker = of(lambda message: handled.set())
    with working(worker, db):
        place.open().topic("events").push("x")
        assert handled.wait(PATIENCE)


def test_ordered(db: Database, kind: Kind) -> None:
    """Of each group one message after the other."""
    topic = db.create_topic("turns", groups=True)
    mail = topic.subscribe("mail", ordered=True)
    for number in range(10):
        for group in "abc":
            topic.push(number, group=group)
    seen: dict[str | None, list[int]] = {}
    worker = Worker(maximum=4)
    worker.handler("turns/mail")(lambda message: seen.setdefault(message.group, []).append(message.payload))
    assert worker.run(db, drain=True) == {"completed": 30}
    assert seen == {group: [*range(10)] for group in "abc"}
    assert counts(mail) == {"finished": 30}


@only("sqlite")
def test_a_topic_has_no_handler(db: Database, events: Topic) -> None:
    worker = Worker()
    worker.add(Handler("events", handlers.by_payload))
    assert "subscription" in refuses(Exception, worker.run, db).remedy


@only("sqlite")
def test_a_schedule_pushes_to_a_topic(db: Database, events: Topic, mail: Subscription) -> None:
    hourly = Schedule("hourly", "events", "0 * * * *", "report")
    for hour in (0, 1, 1.5, 2):
        push_due(db, hourly, hours(hour))
    assert [claim.payload for claim in mail.pop_many(10)] == ["report"] * 2
    error = refuses(BadInput, Worker().every, "0 * * * *", MAIL, "report")
    assert "subscription" in error.cause
    assert "'events'" in error.remedy
