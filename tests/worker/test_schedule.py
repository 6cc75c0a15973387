"""Periodic pushes: one for each due time, however many workers push and however often."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier, Event
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tablequeue import Claim, Database, Queue
from tablequeue.errors import BadInput
from tablequeue.ext import context_of
from tablequeue.verbs import schedule
from tablequeue.worker import Worker
from tablequeue.worker.schedule import Schedule, push_due
from tests.servers import Place
from tests.support import claimed, refuses
from tests.worker.support import PATIENCE, working

NOON = datetime(2040, 6, 1, 12, tzinfo=UTC)
CLOCKS = 6
HOURLY = Schedule("hourly report", "work", "0 * * * *", {"kind": "hourly"})


def hours(number: float) -> datetime:
    return NOON + timedelta(hours=number)


@pytest.fixture
def queue(db: Database) -> Queue:
    return db.create_queue("work")


def test_each_time_is_pushed_once(db: Database, queue: Queue) -> None:
    assert push_due(db, HOURLY, hours(0.5)) == 1800
    assert queue.pop(now=hours(0.5)) is None, "what was due before there was a schedule is not pushed"
    for hour in range(1, 4):
        for minute in (0, 1, 59):
            push_due(db, HOURLY, hours(hour + minute / 60))
        claim = claimed(queue, now=hours(hour))
        assert (claim.payload, claim.headers) == ({"kind": "hourly"}, {"due": hours(hour).isoformat()})
        claim.complete()
        push_due(db, HOURLY, hours(hour + 0.99))
        assert queue.pop(now=hours(hour)) is None, "not again when the first one is finished"


def test_of_missed_times_the_last_one_is_pushed(db: Database, queue: Queue) -> None:
    push_due(db, HOURLY, hours(0))
    push_due(db, HOURLY, hours(30.5))
    (claim,) = queue.pop_many(10, now=hours(31))
    assert claim.headers == {"due": hours(30).isoformat()}


def test_many_clocks_push_once(place: Place, queue: Queue) -> None:
    databases = [place.open() for _ in range(CLOCKS)]
    meet = Barrier(CLOCKS)

    def push(database: Database) -> None:
        for hour in range(4):
            meet.wait(PATIENCE)
            push_due(database, HOURLY, hours(hour))

    with ThreadPoolExecutor(CLOCKS) as threads:
        list(threads.map(push, databases))
    due = [claim.headers["due"] for claim in queue.pop_many(100, now=hours(5))]
    assert due == [hours(hour).isoformat() for hour in (1, 2, 3)]


def test_a_changed_expression_counts_from_then_on(db: Database, queue: Queue) -> None:
    """What would have been due before by the new one has no message; what was due by the old one has its own."""
    nine, eight, in_zone = (
        Schedule("daily", "work", cron, "report", zone)
        for cron, zone in (("0 9 * * *", "UTC"), ("0 8 * * *", "UTC"), ("0 8 * * *", "Europe/Berlin"))
    )
    push_due(db, nine, hours(-24))
    push_due(db, nine, hours(-2.9))
    push_due(db, eight, hours(20.5))  # at 8:30
    push_due(db, in_zone, hours(23))
    push_due(db, eight, hours(23.1))
    assert [message.headers["due"] for message in queue.peek()] == [hours(-3).isoformat()]
    push_due(db, eight, hours(44))
    assert [message.headers["due"] for message in queue.peek()] == [hours(-3).isoformat(), hours(44).isoformat()]


def test_two_versions_of_a_program_push_each_their_times(db: Database, queue: Queue) -> None:
    """Workers of both versions run during a deployment, and no change of an expression counts twice."""
    quarter, half = Schedule("tick", "work", "15 * * * *", 1), Schedule("tick", "work", "30 * * * *", 2)
    for one in (quarter, half):
        push_due(db, one, hours(0))
    for minute in (15, 30, 75, 90):
        for one in (quarter, half):
            push_due(db, one, hours(minute / 60), entered=True)
    assert [message.payload for message in queue.peek()] == [1, 2, 1, 2]


def test_names_that_differ_by_a_blank_or_a_letter(db: Database, queue: Queue) -> None:
    several = [Schedule(name, "work", "0 * * * *", name) for name in ("a", "a ", "A", "\u00e1", "a  ")]
    for hour in range(2):
        for one in several:
            push_due(db, one, hours(hour))
    assert [message.payload for message in queue.peek()] == [one.name for one in several]


def test_a_push_that_fails_leaves_the_time_to_come(db: Database, queue: Queue) -> None:
    push_due(db, HOURLY, hours(0))
    bad = Schedule(HOURLY.name, "work", HOURLY.cron, {"kind": "hourly"}, options={"priority": 3})
    refuses(BadInput, push_due, db, bad, hours(1))
    push_due(db, HOURLY, hours(1.5))
    assert claimed(queue, now=hours(2)).headers == {"due": hours(1).isoformat()}


def test_a_clock_that_is_ahead_of_the_databases_pushes_nothing(db: Database, queue: Queue) -> None:
    push_due(db, HOURLY, hours(0))
    assert not schedule_advances(db, queue, due=hours(1), now=hours(0.9))
    assert schedule_advances(db, queue, due=hours(1), now=hours(1))
    assert not schedule_advances(db, queue, due=hours(1), now=hours(1))


def schedule_advances(db: Database, queue: Queue, due: datetime, now: datetime) -> bool:
    return schedule.push(context_of(queue), HOURLY.name, due, now, lambda connection: None)


@pytest.mark.parametrize(
    ("cron", "zone", "now", "last", "next"),
    [
        ("0 9 * * *", "UTC", "2040-06-01T09:00:00.5", "2040-06-01T09:00", "2040-06-02T09:00"),
        ("0 9 * * *", "Europe/Berlin", "2040-06-01T07:00", "2040-06-01T07:00", "2040-06-02T07:00"),
        ("0 9 * * *", "Europe/Berlin", "2040-01-01T07:59", "2039-12-31T08:00", "2040-01-01T08:00"),
        ("*/15 * * * mon-fri", "UTC", "2040-06-02T12:00", "2040-06-01T23:45", "2040-06-04T00:00"),
        # When daylight saving time begins, 2:30 does not exist. When it ends, 2:30 occurs twice.
        ("30 2 * * *", "Europe/Berlin", "2040-03-25T00:30", "2040-03-24T01:30", "2040-03-25T01:00"),
        ("30 2 * * *", "Europe/Berlin", "2040-03-25T01:00", "2040-03-25T01:00", "2040-03-26T00:30"),
        ("30 2 * * *", "Europe/Berlin", "2040-10-28T01:45", "2040-10-28T00:30", "2040-10-29T01:30"),
        ("*/30 * * * *", "Europe/Berlin", "2040-10-28T00:45", "2040-10-28T00:30", "2040-10-28T01:00"),
        # Between the two passes of 2:30, and in the second one.
        ("30 2 * * *", "Europe/Berlin", "2040-10-28T01:10", "2040-10-28T00:30", "2040-10-29T01:30"),
        ("30 2 * * *", "Europe/Berlin", "2040-10-28T01:30", "2040-10-28T00:30", "2040-10-29T01:30"),
        ("*/20 * * * *", "Europe/Berlin", "2040-10-28T01:10", "2040-10-28T01:00", "2040-10-28T01:20"),
        ("45 1 * * *", "Australia/Lord_Howe", "2040-03-31T15:05", "2040-03-31T14:45", "2040-04-01T15:15"),
    ],
)
def test_times(cron: str, zone: str, now: str, last: str, next: str) -> None:
    def utc(text: str) -> datetime:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)

    one = Schedule("x", "work", cron, None, zone)
    assert (one.last(utc(now)), one.next(utc(now))) == (utc(last), utc(next))


@pytest.mark.parametrize("cron", ["30 2 * * *", "*/20 * * * *", "0 3 * * sun", "15 1,2,3 * * *"])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Antarctica/Troll"])
def test_a_clock_that_is_set_back(cron: str, zone: str) -> None:
    """The next time is always ahead: else a worker would ask the database without a pause."""
    one = Schedule("x", "work", cron, None, zone)
    for day in (
        datetime(2040, 3, 31, tzinfo=UTC),
        datetime(2040, 10, 27, tzinfo=UTC),
        datetime(2040, 11, 3, tzinfo=UTC),
    ):
        for minutes in range(0, 2 * 24 * 60, 10):
            now = day + timedelta(minutes=minutes)
            assert one.last(now) <= now < one.next(now)
            assert one.last(one.next(now)) == one.next(now)


def test_utc_needs_no_data_of_time_zones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tablequeue.worker.schedule.ZoneInfo", lambda zone: ZoneInfo(str(tmp_path)))
    Schedule("x", "work", "0 9 * * *", None)
    refuses(BadInput, Schedule, "x", "work", "0 9 * * *", None, "Europe/Berlin")


WRONG: list[dict[str, Any]] = [
    {"cron": "every day"},
    {"cron": "0 0 31 2 *"},
    {"zone": "Berlin"},
    {"zone": "../x"},
    {"name": "x" * 256},
    {"name": 3},
]


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_a_schedule(wrong: dict[str, Any]) -> None:
    refuses(BadInput, Worker().every, **{"cron": "* * * * *", "queue": "work", "payload": 1, **wrong})


def test_two_of_one_name() -> None:
    worker = Worker()
    worker.every("* * * * *", "work", 1)
    refuses(BadInput, worker.every, "* * * * *", "work", 2)
    worker.every("* * * * *", "work", 2, name="another")


def test_a_worker_pushes_what_is_due(db: Database, queue: Queue) -> None:
    worker = Worker()
    done = Event()

    @worker.handler("work")
    def handle(message: Claim) -> None:
        assert message.payload == "tick"
        done.set()

    worker.every("* * * * *", "work", "tick", name="minutely")
    # As if it had last been due years ago.
    schedule.state(
        context_of(queue), "minutely", schedule.line_of("work", "* * * * *", "UTC"), datetime(2020, 1, 1, tzinfo=UTC)
    )
    with working(worker, db):
        assert done.wait(PATIENCE)
