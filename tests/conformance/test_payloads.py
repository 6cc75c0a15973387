"""Hostile payloads: stored exactly, or refused with nothing changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tablequeue import Database, PayloadType, Queue, TablequeueError
from tablequeue.errors import BadPayload
from tablequeue.model.definition import PAYLOADS
from tests.support import claimed, counts, ids_of, refuses

pytestmark = pytest.mark.quick


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


HOSTILE: dict[str, tuple[PayloadType, Any]] = {
    "empty text": ("text", ""),
    "NUL in text": ("text", "a\0b"),
    "NUL in JSON": ("json", "a\0b"),
    "NUL in a JSON key": ("json", {"\0": 1}),
    "NUL in bytes": ("bytes", b"a\0b"),
    "empty bytes": ("bytes", b""),
    "lone surrogate in text": ("text", "a\ud800b"),
    "lone surrogate in JSON": ("json", {"a\udfff": "\ud800"}),
    "surrogates in the wrong order": ("json", "\udc00\ud800"),
    "NaN": ("json", float("nan")),
    "infinity": ("json", [float("inf")]),
    "a huge integer": ("json", 10**4000),
    "an integer beyond Python's limit": ("json", 10**5000),
    "a long fraction": ("json", 0.1 + 0.2),
    "negative zero": ("json", -0.0),
    "four-byte unicode": ("text", "\U0001f600\U0010ffff"),
    "non-characters": ("text", "\ufffe\uffff\U0001ffff"),
    "nested 500 deep": ("json", nested(500)),
    "nested 1,500 deep": ("json", nested(1500)),
    "nested 100,000 deep": ("json", nested(100_000)),
    "5 MB of text": ("text", "é" * 2_500_000),
    "5 MB of JSON": ("json", ["\\\n\t" * 10] * 100_000),
    "5 MB of bytes": ("bytes", bytes(range(256)) * 20_000),
    "a key that is no string": ("json", {1: 2}),
    "a tuple": ("json", (1, 2)),
    "a set": ("json", {1, 2}),
    "an object": ("json", object()),
    "bytes in JSON": ("json", b"x"),
    "text in bytes": ("bytes", "x"),
    "a number in text": ("text", 1),
    "a bytearray": ("bytes", bytearray(b"\0\1")),
    "a strided memoryview": ("bytes", memoryview(b"\0\1\2\3")[::2]),
    "None in text": ("text", None),
}
# JSON has no tuples, and only strings as keys. These payloads come back as JSON spells them.
SPELLED: dict[str, Any] = {"a key that is no string": {"1": 2}, "a tuple": [1, 2], "a strided memoryview": b"\0\2"}


@pytest.mark.parametrize(("way", "size", "part"), [("one", 1, 1), ("few", 3, 10), ("many", 1001, 1000)])
@pytest.mark.parametrize("payload_type", PAYLOADS)
def test_exactly_or_not_at_all(db: Database, payload_type: PayloadType, way: str, size: int, part: int) -> None:
    queue = db.create_queue("work", payload=payload_type)
    finished = 0
    for name, (of, value) in HOSTILE.items():
        if of == payload_type:
            value = value[: len(value) // part] if name.startswith("5 MB") else value
            finished += stored(queue, name, value, 0 if way == "one" else size)
            assert counts(queue) == ({"finished": finished} if finished else {}), name


def stored(queue: Queue, name: str, value: Any, size: int) -> int:
    """Push a batch of a value, or the value alone, and complete what is stored. Return the number of messages."""
    try:
        pushed = queue.push_many([value] * size) if size else [queue.push(value)]
    except TablequeueError:
        return 0
    expected = SPELLED.get(name, value)
    claims = queue.pop_many(len(pushed) + 1)
    assert ids_of(claims) == pushed, name
    for claim in claims:
        assert claim.payload == expected, name
    if isinstance(expected, float):
        assert repr(claims[0].payload) == repr(expected)  # -0.0 is not 0.0
    queue.complete_many(claims)
    return len(claims)


def test_headers_too(db: Database) -> None:
    queue = db.create_queue("work", payload="text")
    for name, (of, value) in HOSTILE.items():
        if of == "json":
            try:
                queue.push("x", headers={"value": value})
            except TablequeueError:
                assert "ready" not in counts(queue), name
            else:
                assert claimed(queue).headers == {"value": SPELLED.get(name, value)}, name


LONE = "a\ud800b"
WITH_LONE: dict[str, Callable[[Database], Any]] = {
    "json payload": lambda db: db.queue("json").push([{"x": LONE}]),
    "json payloads": lambda db: db.queue("json").push_many([1, LONE]),
    "text payload": lambda db: db.queue("text").push(LONE),
    "payload of a topic": lambda db: db.topic("events").push({LONE: 1}),
    "header": lambda db: db.queue("text").push("x", headers={"x": LONE}),
    "name of a header": lambda db: db.queue("text").push("x", headers={LONE: "x"}),
    "header of a topic": lambda db: db.topic("events").push(1, headers={"x": LONE}),
    "key": lambda db: db.queue("text").push("x", key=LONE),
    "group": lambda db: db.queue("fair").push(1, group=LONE),
    "group of a topic": lambda db: db.topic("events").push(1, group=LONE),
    "group to pop": lambda db: db.queue("fair").pop_group(LONE, 1),
    "result": lambda db: claimed(db.queue("results")).complete(result={"x": LONE}),
    "name of a queue": lambda db: db.create_queue(LONE),
    "name of a topic": lambda db: db.create_topic(LONE),
    "name of a subscription": lambda db: db.topic("events").subscribe(LONE),
    "label": lambda db: db.create_queue("labelled", labels={"x": LONE}),
}


def test_a_lone_surrogate_is_refused_everywhere(db: Database) -> None:
    db.create_queue("json")
    db.create_queue("text", payload="text")
    db.create_queue("fair", groups="fair")
    db.create_queue("results", results=True).push(1)
    topic = db.create_topic("events")
    names = [*db.queues(), *db.topics()]
    ready = ["results"]
    for where, call in WITH_LONE.items():
        refuses(TablequeueError, call, db)
        assert [*db.queues(), *db.topics()] == names, where
        ready = [] if where == "result" else ready  # it is claimed
        assert [name for name in db.queues() if db.queue(name).stats().ready] == ready, where
    assert topic.subscribe("all", start="beginning").pop() is None


@pytest.mark.parametrize(
    ("options", "word"), [({}, "The payload"), ({"headers": {"x": nested(501)}}, "A header")], ids=["payload", "header"]
)
def test_a_refusal_names_what_is_nested_too_deeply(db: Database, options: dict[str, Any], word: str) -> None:
    queue = db.create_queue("work")
    refusal = refuses(BadPayload, queue.push, 1 if options else nested(501), **options)
    assert refusal.cause.startswith(word)
    assert ("payload" in refusal.remedy) == bool(options)


@pytest.mark.parametrize("error", ["", "a\0b", "\ud800", "\\N\t\n", "😀", "x" * 8000])
def test_an_error_is_kept_whatever_it_says(db: Database, error: str) -> None:
    queue = db.create_queue("work", max_attempts=1)
    queue.push(1)
    claimed(queue).fail(error)
    (kept,) = queue.dead()[0].errors
    assert kept.error == error.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


@pytest.mark.parametrize("size", [2, 1002])
def test_a_refusal_inside_your_transaction_leaves_no_half_batch(db: Database, size: int) -> None:
    """If the database refuses a message in the middle of a batch, a commit afterwards adds none of the batch."""
    queue = db.create_queue("work")
    batch = [1] * (size - 1) + [nested(1500)]
    with db.engine.connect() as connection:
        try:
            queue.push_many(batch, connection=connection)
        except TablequeueError:
            expected: dict[str, int] = {}
        else:
            expected = {"ready": size}
        connection.commit()
    assert counts(queue) == expected
