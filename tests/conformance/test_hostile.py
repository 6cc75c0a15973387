"""Hostile names, sizes, characters, times and clocks: stored exactly, or refused with nothing changed."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest

import tablequeue
from tablequeue import ALL, Claim, Database, NewMessage, PayloadType, TablequeueError
from tablequeue.errors import BadInput, BadName, LeaseLost
from tests.nightly import by_night
from tests.servers import Kind, Place
from tests.support import at, check_fenced, claimed, counts, found, ids_of, refuses

pytestmark = pytest.mark.quick

# Every character except surrogates and NUL, in runs that fit into a column.
UNICODE = [
    "".join(chr(code) for code in range(start, min(start + 0x4000, sys.maxunicode + 1)) if not 0xD800 <= code < 0xE000)
    for start in range(0, sys.maxunicode + 1, 0x4000)
]
UNICODE[0] = UNICODE[0].replace("\0", "")
UNICODE = [run for run in UNICODE if run]

MEGABYTE = 1 << 20
SIZES = [0, 1, 255, 256, 65_535, 65_536, MEGABYTE, 16 * MEGABYTE, 64 * MEGABYTE]


@pytest.mark.parametrize("payload", ["text", "json", "bytes"])
def test_all_of_unicode(db: Database, payload: PayloadType) -> None:
    queue = db.create_queue("work", payload=payload)
    values = [run.encode() for run in UNICODE] if payload == "bytes" else UNICODE
    queue.push_many(values)
    claims = queue.pop_many(len(values))
    assert [claim.payload for claim in claims] == values
    errors = [run[:4000] for run in UNICODE[:8]]  # a longer one is shortened: see test_errors.py
    for claim, error in zip(claims, errors, strict=False):
        claim.fail(error, retry_in=0)
    assert [message.errors[0].error for message in queue.peek(8)] == errors
    queue.complete_many(claims[8:])


def test_all_of_unicode_in_headers_keys_and_groups(db: Database) -> None:
    queue = db.create_queue("work", groups=True, payload="text")
    names = [run[start : start + 250] for run in UNICODE[:5] for start in range(0, len(run), 250)]
    ids = queue.push_many(NewMessage("x", key=name, group=name, headers={name: name}) for name in names)
    for id, name in zip(ids, names, strict=True):
        assert queue.push("y", key=name, group=name, on_conflict="return") == id
    claims = queue.pop_many(len(names) + 1)
    assert ids_of(claims) == ids, "each name is a group of its own"
    assert [claim.key for claim in claims] == names
    assert [claim.group for claim in claims] == names
    assert [claim.headers for claim in claims] == [{name: name} for name in names]


# Names that a collation, or the padding of a column, might treat as equal.
ALIKE = ["a", "A", "a ", " a", "a\t", "á", "a\u0301", "\uff41", "\u0430", "ss", "ß", "ﬁ", "fi", "1", "01", "\u200b"]


def test_names_that_look_alike_are_different(db: Database) -> None:
    queue = db.create_queue("work", groups=True, payload="text")
    ids = queue.push_many(NewMessage("x", key=name, group=name) for name in ALIKE)
    assert len(set(ids)) == len(ALIKE)
    assert ids_of(queue.pop_many(100)) == ids


@pytest.mark.parametrize("size", by_night(SIZES, lambda size: size <= 16 * MEGABYTE))
@pytest.mark.parametrize("payload", ["text", "json", "bytes"])
def test_sizes(db: Database, payload: PayloadType, size: int) -> None:
    value: Any = bytes(size) if payload == "bytes" else "x" * size
    queue = db.create_queue("work", payload=payload)
    try:
        queue.push(value)
    except TablequeueError:
        assert size >= 16 * MEGABYTE, "an engine may refuse large payloads only"
        assert counts(queue) == {}
        queue.push(value[:10])
        assert claimed(queue).payload == value[:10], "a refusal leaves the queue as good as before"
        return
    claim = claimed(queue)
    assert claim.payload == value
    claim.complete()
    assert queue.history(1)[0].payload == value


NAMES: list[Any] = [
    *("", " ", " a", "a ", "a\0b", "a\n", "a\tb", "a\u2028b", "a\u200bb", "a\u00a0b", "\ud800", "a\x7f"),
    *("/", "a/", "/a", "a/b/c", ".", "..", "a" * 256, "\U0001f600" * 128),
    *(None, 1, b"work", ["work"]),
]


def test_names_of_queues(db: Database) -> None:
    for name in NAMES:
        for call in (db.create_queue, db.queue):
            refuses(BadName, call, name)
        assert db.queues() == [], ascii(name)


def test_names_that_sql_knows(db: Database) -> None:
    for name in ("a", "a" * 48, "select", "table", "user", "group", "order", "a_1", "work_history"):
        queue = db.create_queue(name, groups=True)
        queue.push(1, group="g")
        claimed(queue).complete()
        assert db.queues() == [name]
        db.queue(name).drop()
        assert db.queues() == []


def test_names_of_consumers(place: Place) -> None:
    for name in ("", "x" * 201, "a\nb", "a\0b", "\ud800", 1):
        refuses(BadInput, tablequeue.connect, place.url, schema=place.schema, name=name)


@pytest.mark.parametrize("name", ["'; drop table x; --", "😀" * 200, "%s %(now)s :now ? {now}", "a\\b"], ids=ascii)
def test_names_of_consumers_are_kept(place: Place, name: str) -> None:
    queue = place.open(name).create_queue("work")
    queue.push(1)
    claimed(queue).complete()
    (message,) = queue.history()
    assert (message.producer, message.consumer) == (name, name)


FIRST = datetime.min.replace(tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)
TIMES = {
    "the first": FIRST,
    "the last": LAST,
    "before 1970": datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
    "1970": datetime(1970, 1, 1, tzinfo=UTC),
    "the year 1000": datetime(1000, 1, 1, tzinfo=UTC),
    "the end of 32 bits": datetime(2038, 1, 19, 3, 14, 8, tzinfo=UTC),
    "a microsecond": datetime(2040, 1, 1, 0, 0, 0, 1, UTC),
    "far east": datetime(2040, 1, 1, 12, tzinfo=timezone(timedelta(hours=23, minutes=59))),
    "a leap day": datetime(2040, 2, 29, tzinfo=UTC),
    "beyond the last, in UTC": datetime.max.replace(tzinfo=timezone(-timedelta(hours=1))),
    "before the first, in UTC": datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
}


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("option", ["due", "now"])
def test_times_at_the_edges(db: Database, name: str, option: str) -> None:
    time = TIMES[name]
    options: dict[str, Any] = {option: time}
    queue = db.create_queue("work")
    try:
        id = queue.push(1, **options)
    except TablequeueError:
        assert counts(queue) == {}
        return
    message = found(queue, id)
    assert (message.due_at if option == "due" else message.pushed_at) == time
    assert message.state == ("scheduled" if option == "due" and time > datetime.now(UTC) else "ready")


@pytest.mark.parametrize("name", TIMES)
def test_leases_at_the_edges_of_time(db: Database, name: str) -> None:
    """A lease that would end after the last possible time is refused or shortened, and never wraps around."""
    queue = db.create_queue("work")
    queue.push(1, now=at(0))
    try:
        claim = queue.pop(lease=3.2e9, now=TIMES[name])
    except TablequeueError:
        assert counts(queue) == {"ready": 1}
        return
    assert claim is not None
    assert claim.lease_until is not None
    assert claim.lease_until > claim.popped_at
    claim.complete()


NAIVE: list[Any] = [datetime(2040, 1, 1), 0, "2040-01-01T00:00:00Z", datetime(2040, 1, 1).date()]


def test_times_without_a_zone(db: Database) -> None:
    queue = db.create_queue("work")
    queue.push(1)
    for time in NAIVE:
        for call in (queue.pop, queue.stats, partial(queue.redrive, ALL)):
            refuses(BadInput, call, now=time)
        refuses(BadInput, queue.push, 2, now=time)
        refuses(BadInput, queue.push, 2, due=time)
    claim = claimed(queue)
    for time in NAIVE:
        for finish in (claim.complete, claim.fail, claim.release, claim.extend):
            refuses(BadInput, finish, now=time)
    claim.complete()


DURATIONS: list[Any] = [-1, -1e-9, float("nan"), float("inf"), 1e300, "1", True, timedelta(days=-1), 10**400, [1]]


def test_invalid_durations(db: Database) -> None:
    queue = db.create_queue("work")
    queue.push(1)
    for duration in DURATIONS:
        refuses(BadInput, queue.push, 2, delay=duration)
        refuses(BadInput, queue.pop, lease=duration)
    claim = claimed(queue)
    for duration in DURATIONS:
        refuses(BadInput, claim.fail, retry_in=duration)
        refuses(BadInput, claim.release, delay=duration)
        refuses(BadInput, claim.extend, duration)
    claim.complete()
    assert counts(queue) == {"finished": 1}


def test_a_clock_set_backwards_delivers_nothing_twice(db: Database, place: Place) -> None:
    """When the clock goes back an hour, a lease lasts longer and a due time comes later. No message is lost or held by
    two."""
    queue, other = db.create_queue("work"), place.open().queue("work")
    first, second = queue.push_many([*"ab"], now=at(0))
    held = claimed(queue, lease=60, now=at(0))
    assert held.id == first
    back = claimed(other, lease=60, now=at(-3600))
    assert (back.id, back.popped_at) == (second, at(-3600))
    assert other.pop(now=at(-3600)) is None
    assert queue.pop(now=at(-3600)) is None
    held.fail("again", retry_in=10, now=at(-3600))
    assert queue.pop(now=at(-3591)) is None
    again = claimed(queue, now=at(-3590))
    assert (again.id, again.attempt) == (first, 2)
    refuses(LeaseLost, held.complete)
    again.complete(now=at(-7200))
    back.complete(now=at(-7200))
    assert counts(queue) == {"finished": 2}
    assert {message.finished_at for message in queue.history()} == {at(-7200)}


def test_numbers_that_are_no_count(db: Database) -> None:
    queue = db.create_queue("work")
    queue.push(1)
    numbers: list[Any] = [0, -1, True, 1.5, "1", None, 1 << 31, 10**100]
    for n in numbers:
        refuses(BadInput, queue.pop_many, n)
        refuses(BadInput, queue.peek, n)
        refuses(BadInput, queue.history, n)
        assert counts(queue) == {"ready": 1}, n


def test_invalid_ids(db: Database) -> None:
    queue = db.create_queue("work")
    ids: list[Any] = [-1, 1 << 63, True, 1.0, "1", None, "1 or 1=1"]
    for id in ids:
        refuses(BadInput, Claim.of, queue, id, "f" * 32)
        refuses(BadInput, queue.find, id)
        refuses(BadInput, queue.redrive, [id])
        refuses(BadInput, queue.purge_dead, [id])
        refuses(BadInput, queue.peek, after=id)


TOKENS: list[Any] = ["", "f" * 31, "f" * 33, "F" * 32, "f" * 32 + "\n", "' or '1'='1", b"f" * 32, None, 1]


def test_invalid_tokens(db: Database) -> None:
    queue = db.create_queue("work")
    id = queue.push(1)
    for token in TOKENS:
        refuses(BadInput, Claim.of, queue, id, token)


def test_invalid_attempts(db: Database) -> None:
    queue = db.create_queue("work")
    attempts: list[Any] = [-1, True, 1.5, "1", None, 10**100]
    for each in attempts:
        refuses(BadInput, Claim.of, queue, 1, "f" * 32, each)


def test_a_claim_that_is_made_up(db: Database) -> None:
    queue = db.create_queue("work")
    queue.push_many([1, 2])
    claim = claimed(queue)
    check_fenced(queue, Claim.of(queue, claim.id, "f" * 32))
    for id in (claim.id + 1, 0, (1 << 63) - 1):
        check_fenced(queue, Claim.of(queue, id, claim.token))
    Claim.of(queue, claim.id, claim.token).complete()
    assert counts(queue) == {"ready": 1, "finished": 1}


def test_a_crowd_of_options_is_refused_by_name(db: Database, kind: Kind) -> None:
    error = refuses(BadInput, db.create_queue, "work", ordr="fifo")
    assert "ordr" in error.cause
    assert db.queues() == []
