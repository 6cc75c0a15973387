"""Retention of topics: what a topic need not keep any more is dropped, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from tablequeue import ALL, Database, Subscription
from tablequeue.errors import Locked
from tablequeue.ext import context_of
from tablequeue.verbs import topics
from tests.servers import Kind, Place, only
from tests.support import at, counts, refuses
from tests.topics import checks
from tests.topics.checks import trimmed

pytestmark = pytest.mark.quick

KEEP = checks.KEEP


def drained(subscription: Subscription) -> list[int]:
    """Pop and complete all that is there. Return the payloads."""
    payloads: list[int] = []
    while batch := subscription.pop_many(7, now=at(5_000)):
        subscription.complete_many(batch, now=at(5_000))
        payloads += [message.payload for message in batch]
    return payloads


def suppressed(error: type[Exception], call: Callable[..., None], *values: Any) -> None:
    """Call it; on PostgreSQL a trim does not wait for long."""
    with suppress(error):
        call(*values)


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
    assert mail.redrive(ALL) == 1
    assert drained(mail) == [0, 3]


def test_what_is_claimed_is_not_dropped(db: Database) -> None:
    checks.check_what_is_claimed_is_not_dropped(db.create_topic("events", keep=KEEP))


def test_what_an_expired_lease_leaves_is_apart_before_it_is_dropped(db: Database) -> None:
    """So a consumer that is gone loses nothing, and a subscription without consumers does not hold the log."""
    topic = db.create_topic("events", keep=KEEP)
    mail = topic.subscribe("mail")
    topic.push_many(range(10), now=at(0))
    trimmed(topic, KEEP / 4)
    assert len(mail.pop_many(5, now=at(1), lease=10)) == 5
    trimmed(topic, KEEP + KEEP / 2)
    assert counts(mail, now=at(2_000)) == {"ready": 5}
    assert drained(mail) == [*range(5)]


def test_a_trim_sees_a_seek_that_has_returned(place: Place, kind: Kind, db: Database) -> None:
    """What a subscription that went back needs stays, though the trim has begun before."""
    if db.engine.dialect.name == "sqlite":
        pytest.skip("one transaction writes at a time")
    topic = db.create_topic("events", keep="consumed")
    mail = topic.subscribe("mail")
    topic.push_many(range(10), now=at(0))
    trimmed(topic, 4_000)  # ends the segment
    assert drained(mail) == [*range(10)]

    def seek(cursor: Any, table: Any, params: Any) -> None:
        context_of(mail).engine.ranges.seek(cursor, table, params)

    with place.sa_engine().connect() as connection, ThreadPoolExecutor(1) as threads:
        params: Any = {"start": 1, "to_end": False, "force": False, "now": None}
        context_of(mail).run(seek, params, connection)
        trims = threads.submit(lambda: suppressed(Locked, trimmed, topic, 9_000))
        with place.sa_engine().connect().execution_options(isolation_level="AUTOCOMMIT") as watch:
            assert kind.blocked is not None, "of a server"
            while not trims.done() and not kind.blocked(watch):
                pass
        connection.commit()
        trims.result(60)
    trimmed(topic, 9_010)
    assert drained(mail) == [*range(10)]


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


@only("postgresql")
def test_a_trim_tries_again_if_transactions_push(place: Place, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = db.create_topic("events", keep=KEEP)
    topic.push_many(range(10), now=at(0))
    trimmed(topic, KEEP / 4)  # ends the segment
    with place.sa_engine().connect() as late:
        topic.push(10, connection=late, now=at(KEEP))
        refuses(Locked, trimmed, topic, KEEP + KEEP / 2)
        monkeypatch.setattr(topics, "sleep", lambda seconds: late.commit())
        trimmed(topic, KEEP + KEEP / 2)
    assert topics.size(context_of(topic)).messages == 1


@pytest.mark.parametrize("keep", ["forever", KEEP])
def test_three_messages_have_a_size(db: Database, keep: Any) -> None:
    topic = db.create_topic("events", keep=keep)
    topic.push_many(range(3))
    size = topics.size(context_of(topic))
    assert size.messages == 3
    assert size.bytes > 0
