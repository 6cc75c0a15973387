"""Messages read in brief, as lists of them are: the start of each payload, whatever its size."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tablequeue import ALL, Consumer, Database, Message, PayloadType
from tablequeue.engines.base import BRIEF
from tablequeue.ext import context_of
from tablequeue.model.payload import Unreadable
from tablequeue.verbs import inspect
from tablequeue.verbs.context import Context
from tests.support import claimed

pytestmark = pytest.mark.quick

LARGE: dict[PayloadType, Any] = {
    "json": {"text": "\N{GREEK SMALL LETTER ALPHA}" * 2 * BRIEF},
    "text": "\N{GREEK SMALL LETTER ALPHA}" * 2 * BRIEF,
    "bytes": b"\x00\xff" * BRIEF,
}
SMALL: dict[PayloadType, Any] = {"json": {"n": [1, None]}, "text": "a", "bytes": b"\xff"}


def start_of(payload: Any) -> Any:
    """Return what of a large payload is read."""
    if isinstance(payload, dict):
        return json.dumps(payload, ensure_ascii=False, separators=(",", ":"))[:BRIEF]
    return payload[:BRIEF]


def same(message: Message | None, payload: Any) -> None:
    assert message is not None
    read = message.payload
    assert message.headers == {}
    if isinstance(read, Unreadable):
        assert str(read) == start_of(payload)
    else:
        assert read == (payload if payload in SMALL.values() else start_of(payload))


@pytest.mark.parametrize("payload", LARGE)
def test_a_list_has_the_start_of_each_payload(db: Database, payload: PayloadType) -> None:
    queue = db.create_queue("letters", payload=payload, max_attempts=1)
    check(queue, queue, LARGE[payload])
    check(queue, queue, SMALL[payload])


@pytest.mark.parametrize("payload", LARGE)
@pytest.mark.parametrize("ordered", [False, True])
def test_a_list_of_a_subscription_too(db: Database, payload: PayloadType, ordered: bool) -> None:
    topic = db.create_topic("events", payload=payload, groups=ordered)
    mail = topic.subscribe("mail", max_attempts=1, ordered=ordered)
    check(topic, mail, LARGE[payload])
    check(topic, mail, SMALL[payload])


def check(target: Any, queue: Consumer, payload: Any) -> None:
    """A message in each state that a list can have."""
    options = {"group": "eu"} if queue.definition.groups else {}
    finished, failed, held, ready = (target.push(payload, headers={"a": 1}, **options) for _ in range(4))
    claimed(queue).complete()
    claimed(queue).fail("no")
    claim = claimed(queue)
    brief = context_of(queue).in_brief()
    (dead,) = inspect.peek(brief, 10, "dead")
    (in_progress,) = inspect.peek(brief, 10, "in_progress")
    (last,) = inspect.history(brief, 1)
    for message in (dead, in_progress, last, *(inspect.find(brief, id) for id in (finished, failed, held, ready))):
        same(message, payload)
    assert [message.id for message in (dead, in_progress, last)] == [failed, held, finished]
    for message in inspect.peek(brief, 10, "blocked" if queue.definition.grouped else "ready"):
        same(message, payload)
    claim.complete()
    claimed(queue).complete()
    queue.purge_dead(ALL)


def test_a_mutant_that_reads_whole_payloads_is_detected(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Context, "in_brief", lambda self: self)
    with pytest.raises(AssertionError):
        check(queue := db.create_queue("letters", payload="text", max_attempts=1), queue, LARGE["text"])
