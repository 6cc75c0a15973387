"""What looks at a subscription: its messages in each state, its history, its statistics, and as Arrow batches."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tablequeue import ALL, Backoff, Consumer, Database
from tablequeue.bulk import arrow
from tablequeue.bulk.arrow import Range
from tablequeue.topic import Subscription, Topic
from tests.support import at

pytestmark = pytest.mark.quick

LARGEST = (1 << 63) - 1
WHOLE = Range(0, LARGEST)


@pytest.fixture
def topic(db: Database) -> Topic:
    return db.create_topic("events", payload="text")


@pytest.fixture
def mail(topic: Topic) -> Subscription:
    return topic.subscribe("mail", max_attempts=2, backoff=Backoff(base=10, jitter=0))


@pytest.fixture
def ordered(db: Database) -> Subscription:
    return db.create_topic("orders", payload="text", groups=True).subscribe("turns", ordered=True)


def payloads(messages: Any) -> list[Any]:
    return [message.payload for message in messages]


def push(topic: Topic, *texts: str, second: float = 0) -> list[int]:
    return topic.push_many(texts, now=at(second))


def finish(mail: Subscription, number: int, second: float = 1, took: float = 1) -> None:
    mail.complete_many(mail.pop_many(number, now=at(second)), now=at(second + took))


# -- peek --------------------------------------------------------------------------------------------------------------


def test_what_no_consumer_has_claimed_is_ready(topic: Topic, mail: Subscription) -> None:
    push(topic, *"abcd")
    mail.pop_many(2)
    (first, second) = mail.peek()
    assert (first.payload, second.payload) == ("c", "d")
    assert (first.state, first.attempts, first.consumer, first.popped_at) == ("ready", 0, None, None)
    assert first.pushed_at == at(0)
    assert (first.lease_until, first.finished_at, first.errors) == (None, None, ())


def test_ready_are_those_of_the_log_and_those_apart_by_id(topic: Topic, mail: Subscription) -> None:
    push(topic, *"abcd")
    a, b = mail.pop_many(2)
    mail.release(a)
    mail.complete(b)
    assert payloads(mail.peek()) == ["a", "c", "d"]
    assert payloads(mail.peek(2)) == ["a", "c"]
    assert payloads(mail.peek(after=a.id)) == ["c", "d"]


def test_all_ready_messages_come_in_pages(topic: Topic, mail: Subscription) -> None:
    for _ in range(3):
        push(topic, *"abcdefg")
        mail.pop_many(2)
    found: list[Any] = []
    while page := mail.peek(4, after=found[-1].id if found else 0):
        found += page
    assert [message.id for message in found] == sorted({message.id for message in found})
    assert len(found) == 3 * 7 - 3 * 2


def test_what_ranges_hold_is_in_progress(topic: Topic, mail: Subscription) -> None:
    push(topic, *"abcd")
    a, b, c = mail.pop_many(3, lease=30, now=at(1))
    mail.complete(b, now=at(2))
    mail.fail(c, "broken", now=at(2))
    (left,) = mail.peek(state="in_progress")
    assert (left.payload, left.state, left.attempts, left.id) == ("a", "in_progress", 1, a.id)
    assert (left.popped_at, left.first_popped_at, left.lease_until) == (at(1), at(1), at(31))
    assert left.finished_at is None
    assert left.consumer


def test_a_message_apart_in_progress_is_beside_those_of_ranges(topic: Topic, mail: Subscription) -> None:
    push(topic, *"ab")
    mail.release(mail.pop_many(1)[0])
    mail.pop_many(1)
    mail.pop_many(1)
    assert [(message.payload, message.attempts) for message in mail.peek(state="in_progress")] == [("a", 1), ("b", 1)]
    assert payloads(mail.peek(1, state="in_progress", after=1)) == ["b"]


def test_scheduled_messages_and_dead_letters_are_those_apart(topic: Topic, mail: Subscription) -> None:
    push(topic, *"abc")
    a, b, _ = mail.pop_many(3, now=at(1))
    mail.fail(a, "later", now=at(2))
    mail.fail(b, "never", retry=False, now=at(2))
    assert payloads(mail.peek(state="scheduled")) == ["a"]
    (dead,) = mail.dead()
    assert (dead.payload, dead.errors[0].error, dead.popped_at) == ("b", "never", at(1))


def test_after_a_seek_messages_are_ready_again(topic: Topic, mail: Subscription) -> None:
    push(topic, *"abc")
    finish(mail, 2)
    mail.seek("beginning")
    assert payloads(mail.peek()) == ["a", "b", "c"]
    mail.seek("end")
    assert mail.peek() == []


# -- find --------------------------------------------------------------------------------------------------------------


def test_find_knows_the_state_of_each_message(topic: Topic, mail: Subscription) -> None:
    ids = push(topic, *"abcdefg")
    a, b, c, d, _ = mail.pop_many(5, now=at(1))
    mail.complete(a, now=at(3))
    mail.fail(b, "later", now=at(3))
    mail.fail(c, "never", retry=False, now=at(3))
    mail.release(d, now=at(3))
    assert states_of(mail, *ids) == ["finished", "scheduled", "dead", "ready", "in_progress", "ready", "ready"]
    assert payloads(map(mail.find, ids)) == list("abcdefg")
    first = mail.find(ids[0])
    assert first
    assert (first.finished_at, first.run_time) == (at(3), timedelta(seconds=2))


def test_find_of_what_the_subscription_never_gets(topic: Topic) -> None:
    ids = push(topic, *"ab")
    late = topic.subscribe("late", start="end")
    assert [late.find(id) for id in ids] == [None, None]
    assert late.find(LARGEST >> 2) is None


def test_the_last_range_counts_after_a_seek(topic: Topic, mail: Subscription) -> None:
    a, b, c = push(topic, *"abc")
    finish(mail, 3, second=1)
    mail.seek("beginning")
    assert states_of(mail, a, b) == ["ready", "ready"]
    mail.pop_many(1)
    assert states_of(mail, a, b, c) == ["in_progress", "ready", "ready"]
    mail.seek("end", force=True)
    assert states_of(mail, b, c) == ["finished", "finished"]


def states_of(mail: Consumer, *ids: int) -> list[str | None]:
    return [message.state if message else None for message in map(mail.find, ids)]


# -- the history -------------------------------------------------------------------------------------------------------


def test_history_has_what_ranges_finished_and_what_was_finished_apart(topic: Topic, mail: Subscription) -> None:
    ids = push(topic, *"abcdef")
    a, b, c, d = mail.pop_many(4, now=at(1))
    mail.fail(b, "late", retry_in=0, now=at(2))
    mail.complete_many([a, c, d], now=at(4))
    (again,) = mail.pop_many(1, now=at(5))
    assert again.id == b.id
    mail.complete(again, now=at(6))
    finish(mail, 2, second=7, took=2)
    history = mail.history()
    assert [message.id for message in history] == ids[::-1]
    assert [message.state for message in history] == ["finished"] * 6
    assert [message.attempts for message in history] == [1, 1, 1, 1, 2, 1]
    assert [message.finished_at for message in history] == [at(9), at(9), at(4), at(4), at(6), at(4)]
    assert [message.popped_at for message in history] == [at(7), at(7), at(1), at(1), at(5), at(1)]
    assert history[4].first_popped_at == at(1)
    assert {message.lease_until for message in history} == {None}


def test_history_has_no_message_that_is_apart_or_was_purged(topic: Topic, mail: Subscription) -> None:
    push(topic, *"abcd")
    a, b, c, d = mail.pop_many(4, now=at(1))
    mail.fail(b, "never", retry=False, now=at(2))
    mail.complete_many([a, c], now=at(2))
    mail.fail(d, "never", retry=False, now=at(2))
    assert payloads(mail.history()) == ["c", "a"]
    assert mail.purge_dead(ALL) == 2
    assert payloads(mail.history()) == ["c", "a"]
    assert mail.stats().finished == 2
    assert mail.find(b.id) is None


def test_history_of_a_range_whose_lease_expired_has_what_was_completed(topic: Topic, mail: Subscription) -> None:
    push(topic, *"abc")
    _, b, _ = mail.pop_many(3, lease=10, now=at(1))
    mail.complete(b, now=at(2))
    assert payloads(mail.history()) == ["b"], "at once, though the range is in progress"
    assert payloads(mail.pop_many(5, now=at(20))) == ["a", "c"]
    (message,) = mail.history()
    assert (message.payload, message.finished_at) == ("b", at(2))
    assert (mail.stats().finished, mail.stats().in_progress) == (1, 2)


def test_history_comes_in_pages(topic: Topic, mail: Subscription) -> None:
    ids = []
    for second in range(4):
        ids += push(topic, *"abcde", second=second)
        a, b, *rest = mail.pop_many(5, now=at(second + 1))
        mail.fail(a, retry=False)
        mail.complete_many(rest, now=at(second + 2))
        mail.complete(b, now=at(second + 3))
    finished = [id for place, id in enumerate(ids) if place % 5]
    pages, before = [], None
    while page := mail.history(3, after=before):
        pages.append([message.id for message in page])
        before = pages[-1][-1]
    assert [len(page) for page in pages] == [3] * 5 + [1]
    assert [id for page in pages for id in page] == finished[::-1]
    assert mail.history_bounds() == (ids[0], ids[-1])


def test_history_has_each_message_once_after_a_replay(topic: Topic, mail: Subscription) -> None:
    ids = push(topic, *"abcdef")
    finish(mail, 6, second=1)
    mail.seek("beginning")
    for second in (10, 12, 14):
        finish(mail, 1, second=second)
    assert [message.id for message in mail.history()] == ids[::-1]
    assert [message.id for message in mail.history(4)] == ids[:1:-1]
    assert [message.popped_at for message in mail.history(3, after=ids[3])] == [at(14), at(12), at(10)]


def test_history_without_finished_messages_is_empty(topic: Topic, mail: Subscription) -> None:
    push(topic, *"ab")
    mail.pop_many(2)
    assert (mail.history(), mail.history_bounds()) == ([], None)


# -- statistics --------------------------------------------------------------------------------------------------------


def test_a_window_has_what_ranges_finished_and_what_was_pushed(topic: Topic, mail: Subscription) -> None:
    push(topic, *"abcd", second=10)
    a, b, c = mail.pop_many(3, now=at(12))
    mail.fail(b, "late", retry_in=0, now=at(13))
    mail.complete_many([a, c], now=at(15))
    (again,) = mail.pop_many(1, now=at(16))
    mail.complete(again, now=at(17))
    window = mail.stats(window=60, now=at(20)).window
    assert window
    queue = window.queue
    assert (queue.pushed, queue.finished, queue.redeliveries) == (4, 3, 1)
    assert queue.wait_time
    assert queue.run_time
    assert (queue.wait_time.p50, queue.run_time.p50) == (2, 3)
    assert [one.finished for one in window.consumers] == [3]
    assert [one.pushed for one in window.producers] == [4]
    assert window.exact
    later = mail.stats(window=4, now=at(20)).window
    assert later
    assert (later.queue.pushed, later.queue.finished) == (0, 1)


def test_counts_are_those_of_the_log_and_of_the_messages_apart(topic: Topic, mail: Subscription) -> None:
    push(topic, *"abcdefg")
    a, b, c, _ = mail.pop_many(4, now=at(1))
    mail.complete(a, now=at(2))
    mail.fail(b, "later", now=at(2))
    mail.fail(c, "never", retry=False, now=at(2))
    stats = mail.stats(now=at(5))
    assert (stats.ready, stats.in_progress, stats.scheduled, stats.dead, stats.finished) == (3, 1, 1, 1, 1)
    assert stats.oldest_age == 5


def test_counts_of_ranges_are_right_when_all_their_messages_have_left(topic: Topic, mail: Subscription) -> None:
    push(topic, *"abc")
    a, b, c = mail.pop_many(3, now=at(1))
    mail.fail(a, "never", retry=False, now=at(2))
    mail.complete(c, now=at(2))
    mail.complete(b, now=at(3))
    stats = mail.stats()
    assert (stats.finished, stats.dead, stats.in_progress) == (2, 1, 0)
    assert payloads(mail.history()) == ["c", "b"]


# -- an ordered subscription -------------------------------------------------------------------------------------------


def test_an_ordered_subscription_shows_the_log_and_its_queue(db: Database, ordered: Subscription) -> None:
    topic = db.topic("orders")
    for text in "abc":
        topic.push(text, group="ada")
    assert payloads(ordered.peek()) == ["a", "b", "c"]
    claim = ordered.pop()
    assert claim
    assert payloads(ordered.peek(state="blocked")) == ["b", "c"]
    assert payloads(ordered.peek(state="in_progress")) == ["a"]
    claim.complete()
    assert payloads(ordered.history()) == ["a"]
    assert ordered.history_bounds() == (claim.id, claim.id)
    assert ordered.stats().finished == 1
    topic.push("d", group="ada")
    found = ordered.find(claim.id + 3)
    assert found
    assert (found.payload, found.group) == ("d", "ada")


# -- as Arrow batches --------------------------------------------------------------------------------------------------


@pytest.fixture(params=[False, True], ids=["rows", "native"])
def native(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a connection that makes Arrow reads, where there is one."""
    monkeypatch.setattr(arrow, "FEW", 0 if request.param else 1 << 62)


def read(queue: Consumer, source: arrow.Source, within: Range = WHOLE) -> list[dict[str, Any]]:
    schema = arrow.columns(queue, source)
    found = arrow.bounds(queue, source, within)
    batches = arrow.batches(queue, source, found, schema) if found else ()
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.usefixtures("native")
def test_arrow_has_the_history_and_the_live_messages(topic: Topic, mail: Subscription) -> None:
    ids = push(topic, *"abcdefgh")
    a, b, c = mail.pop_many(3, now=at(1))
    mail.pop_many(2, now=at(1))
    mail.fail(b, "never", retry=False, now=at(2))
    mail.complete_many([a, c], now=at(4))
    finished = read(mail, "history")
    assert [(row["id"], row["payload"], row["finished_at"]) for row in finished] == [
        (ids[2], "c", at(4)),
        (ids[0], "a", at(4)),
    ]
    live = read(mail, "queue")
    assert [(row["payload"], row["state"]) for row in live] == [
        ("h", "ready"),
        ("g", "ready"),
        ("f", "ready"),
        ("e", "in_progress"),
        ("d", "in_progress"),
        ("b", "dead"),
    ]
    assert read(mail, "history", Range(0, LARGEST, since=at(5))) == []
    assert [row["payload"] for row in read(mail, "history", Range(ids[1], LARGEST, since=at(4), until=at(5)))] == ["c"]


@pytest.mark.usefixtures("native")
def test_arrow_of_an_ordered_subscription(db: Database, ordered: Subscription) -> None:
    topic = db.topic("orders")
    for text in "abc":
        topic.push(text, group="ada")
    claim = ordered.pop()
    assert claim
    claim.complete(now=at(4))
    topic.push("d", group="ada")
    assert [row["payload"] for row in read(ordered, "history")] == ["a"]
    assert [row["payload"] for row in read(ordered, "history", Range(0, LARGEST, since=at(4)))] == ["a"]
    assert sorted(row["payload"] for row in read(ordered, "queue")) == ["b", "c", "d"]


@pytest.mark.usefixtures("native")
def test_arrow_has_no_time_of_a_finish_that_will_change(topic: Topic, mail: Subscription) -> None:
    push(topic, *"abc")
    a, b, c = mail.pop_many(3, now=at(1))
    mail.complete_many([a, b], now=at(2))
    assert payloads(mail.history()) == ["b", "a"]
    assert (read(mail, "history"), read(mail, "history", Range(0, LARGEST, since=at(0)))) == ([], [])
    mail.complete(c, now=at(3))
    assert [(row["payload"], row["finished_at"]) for row in read(mail, "history")] == [
        (payload, at(3)) for payload in "cba"
    ]


def test_short_reads_have_all_of_a_long_history(topic: Topic, mail: Subscription) -> None:
    ids = []
    for second in range(20):
        ids += push(topic, *map(str, range(50)), second=second)
        finish(mail, 30, second=second)
    finish(mail, 1000, second=30)
    found: list[int] = []
    while page := mail.history(64, after=found[-1] if found else None):
        found += [message.id for message in page]
    assert found == ids[::-1]
