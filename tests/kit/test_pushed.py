"""`assert_pushed`: what it finds, what it refuses, and mutants of it that pass wrongly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import ANY

import pytest

import tablequeue
from tablequeue import Database, Message, Queue
from tablequeue.errors import BadInput
from tablequeue.testing import assert_pushed, pushed

pytestmark = pytest.mark.quick

PAYLOAD = {"to": "ada", "sizes": [1, 2], "urgent": True, "count": 1}


@pytest.fixture
def emails(db: Database) -> Queue:
    """Two messages in two groups."""
    queue = db.create_queue("emails", groups=True)
    queue.push(PAYLOAD, group="eu", key="k1", headers={"trace": "t1"}, delay=60)
    queue.push({"to": "bob"}, group="us")
    return queue


FOUND: dict[str, tuple[dict[str, Any], int]] = {
    "anything": ({}, 2),
    "payload": ({"payload": PAYLOAD}, 1),
    "tuple": ({"payload": {**PAYLOAD, "sizes": (1, 2)}}, 1),
    "part": ({"payload": {**PAYLOAD, "to": ANY}}, 1),
    "group": ({"group": "us"}, 1),
    "key": ({"key": "k1"}, 1),
    "no key": ({"key": None}, 1),
    "headers": ({"headers": {"trace": "t1"}}, 1),
    "no headers": ({"headers": {}}, 1),
    "delay": ({"delay": timedelta(minutes=1)}, 1),
    "no delay": ({"delay": 0}, 1),
    "priority": ({"priority": 0}, 2),
    "all": ({"payload": PAYLOAD, "group": "eu", "key": "k1", "delay": 60, "headers": {"trace": "t1"}}, 1),
}
DIFFERENT: dict[str, tuple[dict[str, Any], str]] = {
    "value": ({"payload": {**PAYLOAD, "to": "eve"}}, "payload['to'] is 'ada', not 'eve'"),
    "missing": ({"payload": {**PAYLOAD, "more": 1}}, "payload['more'] is missing"),
    "besides": ({"payload": {"to": "ada", "sizes": [1, 2], "urgent": True}}, "payload['count'] is 1, and was not"),
    "in a list": ({"payload": {**PAYLOAD, "sizes": [1, 3]}}, "payload['sizes'][1] is 2, not 3"),
    "length": ({"payload": {**PAYLOAD, "sizes": [1]}}, "payload['sizes'] is [1, 2], not [1]"),
    "true": ({"payload": {**PAYLOAD, "count": True}}, "payload['count'] is 1, not True"),
    "one": ({"payload": {**PAYLOAD, "urgent": 1}}, "payload['urgent'] is True, not 1"),
    "null": ({"payload": None}, "not None"),
    "unserialisable": ({"payload": {**PAYLOAD, "to": object}}, "payload['to'] is 'ada', not <class 'object'>"),
    "group": ({"payload": PAYLOAD, "group": "us"}, "group is 'eu', not 'us'"),
    "no group": ({"group": None}, "group is 'eu', not None"),
    "key": ({"payload": PAYLOAD, "key": "k2"}, "key is 'k1', not 'k2'"),
    "headers": ({"payload": PAYLOAD, "headers": {}}, "headers['trace'] is 't1', and was not expected"),
    "delay": ({"payload": PAYLOAD, "delay": 61}, "delay is 60.0, not 61.0"),
    "priority": ({"priority": 1}, "priority is 0, not 1"),
}


@pytest.mark.parametrize(("expected", "number"), FOUND.values(), ids=FOUND)
def test_what_was_pushed_is_found(emails: Queue, expected: dict[str, Any], number: int) -> None:
    assert len(assert_pushed(emails, **expected)) == number
    assert len(assert_pushed(emails, **expected, count=number)) == number
    with pytest.raises(AssertionError, match=f"^Expected {number + 1} messages pushed to 'emails'.* found {number} "):
        assert_pushed(emails, **expected, count=number + 1)


@pytest.mark.parametrize(("expected", "line"), DIFFERENT.values(), ids=DIFFERENT)
def test_a_difference_fails_and_is_shown(emails: Queue, expected: dict[str, Any], line: str) -> None:
    assert assert_pushed(emails, **expected, count=0) == []
    with pytest.raises(AssertionError, match=r"^Expected one or more messages .*, found none") as failure:
        assert_pushed(emails, **expected)
    assert line in str(failure.value)


def check_differences(emails: Queue) -> None:
    for expected, line in DIFFERENT.values():
        test_a_difference_fails_and_is_shown(emails, expected, line)


def test_the_nearest_is_shown_first(emails: Queue) -> None:
    with pytest.raises(AssertionError) as failure:
        assert_pushed(emails, {"to": "eve"}, group="us")
    assert str(failure.value).splitlines() == [
        "Expected one or more messages pushed to 'emails' with payload={'to': 'eve'}, group='us', found none.",
        "Others, the nearest first:",
        "  message 2, ready:",
        "    payload['to'] is 'bob', not 'eve'",
        "  message 1, scheduled:",
        "    payload['count'] is 1, and was not expected",
        "    payload['sizes'] is [1, 2], and was not expected",
        "    payload['urgent'] is True, and was not expected",
        "    payload['to'] is 'ada', not 'eve'",
        "    group is 'eu', not 'us'",
    ]


def test_what_was_not_to_be_pushed_is_shown(db: Database) -> None:
    queue = db.create_queue("emails")
    queue.push_many(range(7))
    with pytest.raises(AssertionError) as failure:
        assert_pushed(queue, count=0)
    lines = str(failure.value).splitlines()
    assert lines[:3] == ["Expected no message pushed to 'emails', found 7 messages.", "Found:", "  message 1, ready: 0"]
    assert lines[-1] == "  and 2 more"


def test_an_empty_queue_says_so(db: Database) -> None:
    with pytest.raises(AssertionError, match=r"The queue and its history are empty\. What a tra"):
        assert_pushed(db.create_queue("emails"), 1)


def test_a_message_was_pushed_whatever_has_become_of_it(db: Database) -> None:
    queue = db.create_queue("emails", max_attempts=1)
    queue.push_many(["finished", "dead", "cancelled", "in progress", "ready"])
    queue.push("scheduled", delay=60)
    finished, dead = queue.pop_many(2)
    finished.complete()
    dead.fail()
    queue.cancel(dead.id + 1)
    held = queue.pop()
    assert held is not None
    assert [message.payload for message in assert_pushed(queue, count=6)] == [
        "finished",
        "dead",
        "cancelled",
        "in progress",
        "ready",
        "scheduled",
    ]


def test_a_message_that_moves_meanwhile_counts_once(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = db.create_queue("emails")
    queue.push(1)
    history = queue.history

    def finished_before(*args: Any, **options: Any) -> list[Message]:
        queue.complete_many(queue.pop_many(1))
        return history(*args, **options)

    monkeypatch.setattr(queue, "history", finished_before)
    assert_pushed(queue, 1, count=1)


@pytest.mark.parametrize("payload", ["text", "bytes"])
def test_every_type_of_payload_is_compared(db: Database, payload: Any) -> None:
    queue = db.create_queue("files", payload=payload)
    value: Any = b"a" if payload == "bytes" else "a"
    queue.push(value)
    assert_pushed(queue, value, count=1)
    assert_pushed(queue, ANY, count=1)
    assert_pushed(queue, value + value, count=0)
    assert_pushed(queue, {"a": 1}, count=0)


def test_a_message_of_a_subscription_counts_there(db: Database) -> None:
    topic = db.create_topic("events")
    mail = topic.subscribe("mail")
    topic.push({"n": 1})
    assert_pushed(mail, {"n": 1}, count=1)


WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a name": ("emails", {}, "was given str. Give it the queue of tablequeue.connect"),
    "count": (None, {"count": -1}, "count is -1. Give a whole number from 0"),
    "a count that is none": (None, {"count": True}, "count is True. Give a whole number"),
    "headers": (None, {"headers": 1}, "headers is 1. Give a dict"),
    "delay": (None, {"delay": -1}, "delay is -1. Give seconds"),
}


@pytest.mark.parametrize(("queue", "expected", "words"), WRONG.values(), ids=WRONG)
def test_wrong_input_is_refused(db: Database, queue: Any, expected: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        assert_pushed(queue or db.create_queue("emails"), **expected)


# -- mutants -----------------------------------------------------------------------------------------------------------


def no_differences(message: Message, expected: dict[str, Any]) -> list[str]:
    return []


def of_the_payload_alone(message: Message, expected: dict[str, Any]) -> list[str]:
    return _differences(message, {name: value for name, value in expected.items() if name == "payload"})


def of_a_part(message: Message, expected: dict[str, Any]) -> list[str]:
    """Forgets what was not expected."""
    return [line for line in _differences(message, expected) if "was not expected" not in line]


def as_python_compares(message: Message, expected: dict[str, Any]) -> list[str]:
    return [] if message.payload == expected.get("payload", message.payload) else _differences(message, expected)


def without_headers(message: Message, expected: dict[str, Any]) -> list[str]:
    return _differences(replace(message, headers=expected.get("headers", {})), expected)


def without_delays(message: Message, expected: dict[str, Any]) -> list[str]:
    return _differences(message, {name: value for name, value in expected.items() if name != "delay"})


_differences = pushed._differences


@pytest.mark.parametrize(
    "mutant",
    [no_differences, of_the_payload_alone, of_a_part, as_python_compares, without_headers, without_delays],
    ids=lambda mutant: mutant.__name__,
)
def test_an_assertion_that_passes_wrongly_is_detected(
    tmp_path: Any, mutant: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with tablequeue.connect(f"sqlite:///{tmp_path}/queues.db") as db:
        queue = db.create_queue("emails", groups=True)
        queue.push(PAYLOAD, group="eu", key="k1", headers={"trace": "t1"}, delay=60)
        queue.push({"to": "bob"}, group="us")
        monkeypatch.setattr(pushed, "_differences", mutant)
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            check_differences(queue)
