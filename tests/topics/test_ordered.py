"""Ordered subscriptions: within a group strictly one after the other, and groups side by side."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tablequeue import Database, NewMessage
from tablequeue.errors import BadInput
from tablequeue.topic import Subscription, Topic
from tests.servers import Place
from tests.support import at, check_fenced, claimed, counts, ids_of, refuses
from tests.topics import checks

pytestmark = pytest.mark.quick


@pytest.fixture
def topic(db: Database) -> Topic:
    return db.create_topic("orders", payload="text", groups=True)


@pytest.fixture
def turns(topic: Topic, ordered: Subscription) -> Subscription:
    return ordered


def push(topic: Topic, groups: str, **options: Any) -> list[int]:
    return topic.push_many([NewMessage(group, group=group) for group in groups], **options)


def test_a_group_has_one_in_progress(topic: Topic, turns: Subscription) -> None:
    checks.check_a_group_has_one_in_progress(topic, turns)


def test_a_failed_message_holds_its_group(topic: Topic, turns: Subscription) -> None:
    checks.check_a_failed_message_holds_its_group(topic, turns)


def test_a_dead_letter_frees_its_group(topic: Topic, turns: Subscription) -> None:
    first, second = push(topic, "gg", now=at(0))
    claim = claimed(turns, now=at(0))
    assert claim.id == first
    assert claim.fail("no", retry=False, now=at(0)) == "dead"
    assert claimed(turns, now=at(0)).id == second
    assert ids_of(turns.dead()) == [first]


def test_a_lease_that_expires_keeps_the_place(topic: Topic, turns: Subscription) -> None:
    first, second = push(topic, "gg", now=at(0))
    old = claimed(turns, lease=10, now=at(0))
    assert turns.pop(now=at(5)) is None
    again = claimed(turns, now=at(10))
    assert (again.id, again.attempt) == (first, 2)
    check_fenced(turns, old)
    again.complete(now=at(11))
    assert claimed(turns, now=at(11)).id == second


def test_several_consumers_keep_the_order_of_each_group(place: Place, topic: Topic, turns: Subscription) -> None:
    for _ in range(20):
        push(topic, "abcdefgh")
    handled: list[tuple[str, int]] = []

    def work(queue: Any) -> None:
        while batch := queue.pop_many(3):
            for claim in batch:
                handled.append((claim.group, claim.id))  # before the completion: in the order of the handling
                claim.complete()

    consumers = [place.open().subscription("orders/turns") for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, consumers))
    work(turns)
    assert len(handled) == 160
    for group in "abcdefgh":
        ids = [id for name, id in handled if name == group]
        assert ids == sorted(ids), "in order"
    assert counts(turns) == {"finished": 160}


def test_more_messages_than_one_move(topic: Topic, turns: Subscription) -> None:
    """A call moves a thousand messages from the log to the queue."""
    ids = topic.push_many(["x"] * 2500, group="g")
    assert counts(turns) == {"ready": 2500}
    got = []
    for _ in range(3):
        claim = claimed(turns)
        got.append(claim.id)
        claim.complete()
    assert got == ids[:3]
    assert turns.lag().messages == 2497
    assert sum(counts(turns).values()) == 2500


def test_beside_one_that_is_not_ordered(topic: Topic, turns: Subscription) -> None:
    loose = topic.subscribe("loose")
    ids = push(topic, "ggg")
    assert ids_of(loose.pop_many(10)) == ids
    assert ids_of(turns.pop_many(10)) == ids[:1]


def test_release_and_extend(topic: Topic, turns: Subscription) -> None:
    first, _ = push(topic, "gg", now=at(0))
    claim = claimed(turns, lease=10, now=at(0))
    assert claim.extend(100, now=at(5)) == at(105)
    claim.release(now=at(50))
    again = claimed(turns, now=at(50))
    assert (again.id, again.attempt) == (first, 1)


def test_it_needs_a_topic_with_groups(db: Database) -> None:
    topic = db.create_topic("loose")
    refuses(BadInput, topic.subscribe, "mail", ordered=True)
    assert topic.subscriptions() == []


def test_a_message_without_a_group_stops_nobody(place: Place, topic: Topic, turns: Subscription) -> None:
    checks.check_a_message_without_a_group_stops_nobody(place, topic, turns)


def test_the_log_refuses_a_message_without_a_group(db: Database, place: Place, topic: Topic) -> None:
    with pytest.raises(Exception, match="group"):
        checks.push_without_a_group(place)
    db.create_topic("loose", payload="text").push("x")
