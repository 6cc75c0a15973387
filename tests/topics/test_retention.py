"""Retention of topics: what a topic need not keep any more is dropped, and nothing else."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tablequeue import Database, Subscription, Topic
from tests.support import at

KEEP = 800


def drained(subscription: Subscription) -> list[int]:
    """Pop and complete all that is there. Return the payloads."""
    payloads: list[int] = []
    while batch := subscription.pop_many(7, now=at(5_000)):
        subscription.complete_many(batch, now=at(5_000))
        payloads += [message.payload for message in batch]
    return payloads


def trimmed(topic: Topic, seconds: float) -> None:
    """Trim often enough at a time: a segment that has ended is dropped by a later call than the one that ended it."""
    for moment in range(3):
        topic.trim(now=at(seconds + moment))


def test_what_is_older_than_keep_is_dropped(db: Database) -> None:
    topic = db.create_topic("events", keep=timedelta(seconds=KEEP))
    mail = topic.subscribe("mail")
    topic.push_many(range(10), now=at(0))
    trimmed(topic, KEEP / 4)  # ends the segment
    topic.push_many(range(10, 20), now=at(KEEP / 2))
    trimmed(topic, KEEP - 10)
    assert mail.lag().messages == 20, "nothing is older than keep"
    trimmed(topic, KEEP + KEEP / 4)
    assert drained(mail) == [*range(10, 20)]
    topic.push_many(range(20, 30), now=at(5_000))
    assert drained(mail) == [*range(20, 30)]


def test_consumed_waits_for_every_subscription(db: Database) -> None:
    topic = db.create_topic("events", keep="consumed")
    fast, slow = topic.subscribe("fast"), topic.subscribe("slow")
    topic.push_many(range(10), now=at(0))
    trimmed(topic, 4_000)
    assert drained(fast) == [*range(10)]
    claims = slow.pop_many(10, now=at(4_500), lease=10_000)
    trimmed(topic, 4_600)
    fast.seek("beginning")
    assert drained(fast) == [*range(10)], "a range in progress still needs them"
    slow.complete_many(claims, now=at(4_700))
    trimmed(topic, 4_800)
    fast.seek("beginning")
    assert drained(fast) == []
    topic.push(10, now=at(5_000))
    assert drained(fast) == drained(slow) == [10]


def test_what_was_consumed_lately_is_in_the_history_and_the_statistics(db: Database) -> None:
    topic = db.create_topic("events", keep="consumed")
    mail = topic.subscribe("mail")
    topic.push_many(range(10), now=at(4_900))
    assert drained(mail) == [*range(10)]
    trimmed(topic, 5_010)
    window = mail.stats(window=300, now=at(5_020)).window
    assert window is not None
    assert (window.queue.pushed, window.queue.finished, len(mail.history())) == (10, 10, 10)
    trimmed(topic, 4_900 + 3_700)
    trimmed(topic, 4_900 + 7_400)
    assert mail.history() == []


def test_without_a_subscription_nothing_is_consumed(db: Database) -> None:
    topic = db.create_topic("events", keep="consumed")
    topic.push_many(range(5), now=at(0))
    trimmed(topic, 9_000)
    assert drained(topic.subscribe("late")) == [*range(5)]


def test_a_message_apart_outlives_its_segment(db: Database) -> None:
    topic = db.create_topic("events", keep=KEEP)
    mail = topic.subscribe("mail", max_attempts=1)
    topic.push_many(range(3), now=at(0))
    claims = mail.pop_many(3, now=at(1))
    mail.fail(claims[0], "no", now=at(2))
    mail.complete_many(claims[1:], now=at(2))
    trimmed(topic, KEEP / 4)
    topic.push(3, now=at(3_000))
    trimmed(topic, 3_000)
    assert [message.payload for message in mail.dead()] == [0]
    assert mail.redrive() == 1
    assert drained(mail) == [0, 3]


def test_a_late_commit_into_an_old_segment_is_kept(db: Database) -> None:
    """A segment stays while a transaction may still commit into it."""
    topic = db.create_topic("events", keep=KEEP)
    mail = topic.subscribe("mail")
    if db.engine.dialect.name == "sqlite":
        pytest.skip("one transaction writes at a time")
    with db.engine.connect() as late:
        topic.push("late", connection=late, now=at(0))
        trimmed(topic, KEEP / 4)
        topic.push("early", now=at(KEEP))
        trimmed(topic, KEEP + KEEP / 2)
        assert [message.payload for message in mail.pop_many(5, now=at(KEEP))] == ["early"]
        late.commit()
    assert [message.payload for message in mail.pop_many(5, now=at(KEEP))] == ["late"]
