"""push and push_many."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from tablequeue import Database, NewMessage, PayloadType, Queue
from tablequeue.errors import BadInput, BadPayload
from tests.servers import Place
from tests.support import at, claimed, counts, found, ids_of, refuses

pytestmark = [pytest.mark.quick, pytest.mark.needs("plain_push")]

# From 1000 on, PostgreSQL uses COPY instead of an INSERT from arrays.
SIZES = (0, 1, 2, 999, 1000, 2500)

TEXTS = [
    "",
    " ",
    "\\",
    "\\\\",
    "\\N",
    "\\.",
    "\t",
    "\n",
    "\r",
    "\r\n",
    "a\\tb",
    "a\\nb",
    "\\x41",
    "\\101",
    "\b\f\v\x01\x1f\x7f",
    "'",
    '"',
    "''; drop table x; --",
    ":name %s %(name)s ? $1 {now}",
    "é ü ß ÿ",
    "中文 العربية",
    "😀 \U0010ffff",
    "\u0085\u2028\u2029\ufeff",
    "x" * 10_000,
]
BYTES = [b"", b"\0", bytes(range(256)), b"\\N\n\t\r\\.", b"\\x41", b"\xff\xfe", b"'\"", bytes(10_000)]
JSONS: list[Any] = [
    None,
    True,
    0,
    -1.5,
    1e300,
    2**200,
    "",
    [],
    {},
    *TEXTS,
    {"\\N": "\t\n\r\\.", "": [None, {"a": [1, 2.5, "\0"]}]},
]
VALUES: dict[str, list[Any]] = {"json": JSONS, "text": TEXTS, "bytes": BYTES}


@pytest.mark.needs("many_in_progress")
@pytest.mark.parametrize("size", SIZES)
def test_ids_are_aligned_with_the_input(queue: Queue, size: int) -> None:
    ids = queue.push_many(f"payload {number}" for number in range(size))
    assert len(ids) == len(set(ids)) == size
    popped = {claim.id: claim.payload for claim in queue.pop_many(size + 1)}
    assert [popped[id] for id in ids] == [f"payload {number}" for number in range(size)]


@pytest.mark.parametrize("payload", VALUES)
@pytest.mark.parametrize("size", [1, 1500], ids=["few", "many"])
def test_values_come_back_exactly(db: Database, payload: PayloadType, size: int) -> None:
    values = VALUES[payload]
    queue = db.create_queue("work", payload=payload)
    batch = (values * (size // len(values) + 1))[: max(size, len(values))]
    queue.push_many(batch)
    assert [claim.payload for claim in queue.pop_many(len(batch))] == batch


@pytest.mark.parametrize("payload", VALUES)
def test_one_by_one_too(db: Database, payload: PayloadType) -> None:
    queue = db.create_queue("work", payload=payload)
    for value in VALUES[payload]:
        queue.push(value)
        claim = claimed(queue)
        assert claim.payload == value
        assert type(claim.payload) is type(value)
        claim.complete()
    assert [message.payload for message in reversed(queue.history(100))] == VALUES[payload]


@pytest.mark.needs("many_in_progress")
@pytest.mark.parametrize("size", [3, 1200])
def test_every_option_holds_for_every_message(queue: Queue, size: int) -> None:
    headers = {"trace": 'a"\\b\n\t', "n": [1, None]}
    priority = -3 if queue.definition.order == "priority" else None
    queue.push_many(map(str, range(size)), headers=headers, delay=5, priority=priority, now=at(0))
    assert counts(queue) == {"scheduled": size}
    for message in queue.peek(size, state="scheduled"):
        assert (message.headers, message.pushed_at, message.due_at) == (headers, at(0), at(5))
        assert (message.priority, message.group, message.key) == (priority or 0, None, None)
    # A sweep makes a thousand due messages ready, so a larger backlog takes a second call.
    claims = queue.pop_many(size, now=at(5)) + queue.pop_many(size, now=at(5))
    assert len(claims) == size
    assert all(claim.headers == headers for claim in claims)


def test_a_message_says_who_pushed_it_and_when(place: Place, queue: Queue) -> None:
    id = place.open("ada's laptop").queue("work").push("x", now=at(1.234567))
    message = found(queue, id)
    assert (message.producer, message.pushed_at, message.state) == ("ada's laptop", at(1.234567), "ready")
    assert (message.attempts, message.consumer, message.headers, message.errors) == (0, None, {}, ())
    assert message.wait_time is None
    assert message.run_time is None


def test_ids_are_never_used_twice(queue: Queue) -> None:
    first = queue.push("a")
    claimed(queue).complete()
    queue.push("b")
    queue.purge()
    last = queue.push("c")
    assert last > first + 1


@pytest.mark.needs("many_in_progress")
def test_delay_and_due(queue: Queue) -> None:
    in_ten = queue.push("delay", delay=10, now=at(0))
    as_timedelta = queue.push("timedelta", delay=timedelta(seconds=11), now=at(0))
    elsewhere = at(12).astimezone(timezone(timedelta(hours=-7)))
    due = queue.push("due", due=elsewhere, now=at(0))
    past = queue.push("past", due=at(-1), now=at(0))
    at_once = queue.push("no delay", delay=0, now=at(0))
    assert sorted(ids_of(queue.peek(10))) == [past, at_once]
    assert sorted(ids_of(queue.pop_many(10, now=at(9.999999)))) == [past, at_once]
    assert ids_of(queue.pop_many(10, now=at(10))) == [in_ten]
    assert ids_of(queue.pop_many(10, now=at(11))) == [as_timedelta]
    assert found(queue, due).due_at == at(12)
    assert ids_of(queue.pop_many(10, now=at(12))) == [due]


def test_a_refused_push_changes_nothing(queue: Queue) -> None:
    refuses(BadPayload, queue.push, b"bytes")
    error = refuses(BadPayload, queue.push_many, ["good", "good", 3, "good"])
    assert "number 3" in error.cause
    refuses(BadPayload, queue.push, "x", headers={"x": float("nan")})
    refuses(BadPayload, queue.push, "x", headers="x")
    refuses(BadInput, queue.push, "x", delay=-1)
    refuses(BadInput, queue.push, "x", delay=float("nan"))
    refuses(BadInput, queue.push, "x", delay="1")
    refuses(BadInput, queue.push, "x", delay=1, due=at(1))
    assert counts(queue) == {}


def test_a_time_without_its_zone_is_refused(queue: Queue) -> None:
    naive = datetime(2040, 1, 1)
    for option in ("due", "now"):
        refuses(BadInput, queue.push, "x", **{option: naive})
        refuses(BadInput, queue.push_many, ["x"], **{option: naive})
        refuses(BadInput, queue.push, "x", **{option: 1.5})
    assert counts(queue) == {}


def test_an_iterable_that_breaks_pushes_nothing(queue: Queue) -> None:
    def lines() -> Any:
        yield "a"
        raise OSError("the file is gone")

    with pytest.raises(OSError, match="the file is gone"):
        queue.push_many(lines())
    assert counts(queue) == {}


class DataFrame(list[str]):
    """Iterated, a table of Pandas yields the names of its columns."""


@pytest.mark.parametrize(
    "one",
    [
        {"to": "ada"},
        "hello",
        "",
        b"hello",
        bytearray(b"a"),
        memoryview(b"a"),
        NewMessage("x"),
        DataFrame("ab"),
        7,
        None,
    ],
    ids=lambda one: type(one).__name__,
)
def test_one_payload_is_no_list_of_payloads(db: Database, one: Any) -> None:
    """Its keys, its letters or its columns would be pushed."""
    work, topic = db.create_queue("work", batches=True), db.create_topic("events")
    mail = topic.subscribe("mail")
    with suppress(BadInput), work.batch() as batch:
        for push_many in (work.push_many, topic.push_many, batch.push_many):
            error = refuses(BadInput, push_many, one)
            assert f"one {type(one).__name__}" in error.cause
            assert "push one payload with push" in error.remedy
    assert (counts(work), mail.lag().messages) == ({}, 0)
    assert work.push_many(iter([{"to": "ada"}])) == [work.peek()[0].id]
