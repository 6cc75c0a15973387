"""Groups: strict within a group, parallel between groups, and no group starves another."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from tablequeue import ALL, Backoff, Consumer, Database, NewMessage, Queue
from tablequeue.errors import BadInput, LeaseLost
from tests.callers import Caller
from tests.checks import check_one_in_progress_per_group
from tests.servers import Place
from tests.support import at, claimed, complete_all, counts, found, ids_of, refuses

pytestmark = [pytest.mark.quick, pytest.mark.variants("procedures")]


@pytest.fixture
def queue(db: Database) -> Queue:
    return db.create_queue("work", groups=True, payload="text", max_attempts=2, backoff=Backoff(base=10, jitter=0))


def push(queue: Queue, groups: str, **options: Any) -> list[int]:
    """Push a message for each letter, in the group of that letter."""
    return queue.push_many([NewMessage(group, group=group) for group in groups], **options)


def test_one_in_progress_per_group(queue: Queue) -> None:
    check_one_in_progress_per_group(queue)


def test_a_batch_is_one_of_each_group_in_order(queue: Queue) -> None:
    a, _, b, c, *_ = push(queue, "aabcbc")
    claims = queue.pop_many(10)
    assert ids_of(claims) == [a, b, c]
    assert [claim.group for claim in claims] == ["a", "b", "c"]
    assert queue.pop_many(10) == []
    assert counts(queue) == {"in_progress": 3, "blocked": 3}


def test_order_within_a_group(queue: Queue) -> None:
    ids = push(queue, "abc" * 20)
    popped: dict[str | None, list[int]] = {"a": [], "b": [], "c": []}
    for message in queue.consume(wait=0, prefetch=2):
        popped[message.group].append(message.id)
        message.complete()
    assert popped == {"a": ids[0::3], "b": ids[1::3], "c": ids[2::3]}


def test_a_blocked_group_with_a_thousand_messages_does_not_starve_the_others(queue: Queue) -> None:
    queue.push_many(["big"] * 1000, group="big")
    head = claimed(queue)
    others = push(queue, "abcdef")
    assert ids_of(queue.pop_many(3)) == others[:3]
    assert ids_of([claimed(queue) for _ in range(3)]) == others[3:]
    assert queue.pop() is None
    head.complete()
    assert claimed(queue).group == "big"


def test_many_groups_all_get_their_turn(queue: Queue) -> None:
    """More than are promoted at once; between groups there is no order."""
    ids = queue.push_many([NewMessage("x", group=f"group {number}") for number in range(2500)])
    popped: list[int] = []
    while claims := queue.pop_many(1000):
        popped += ids_of(claims)
        queue.complete_many(claims)
    assert sorted(popped) == ids


@pytest.mark.parametrize("way", ["complete", "fail", "killed", "purge"])
def test_what_frees_a_group(queue: Queue, place: Place, way: str) -> None:
    head, following = push(queue, "aa", now=at(0))
    for attempt in (1, 2):
        claim = claimed(queue, lease=10, now=at(10 * attempt))
        assert claim.id == head
        assert queue.pop(now=at(10 * attempt)) is None
        if way == "fail":
            claim.fail("no", retry_in=0, now=at(10 * attempt))
        elif way != "killed":
            break
    if way == "complete":
        claim.complete(now=at(15))
    elif way == "purge":
        # Only the head is left, and a message pushed after it is the next one of the group.
        assert queue.purge() == 1
        claim.complete(now=at(15))
        following = queue.push("a", group="a", now=at(15))
    assert claimed(queue, now=at(30)).id == following


def test_a_head_that_is_purged_makes_room(queue: Queue) -> None:
    push(queue, "aaa")
    assert queue.purge() == 3
    assert counts(queue) == {}
    after = push(queue, "aa")
    assert claimed(queue).id == after[0]


@pytest.mark.parametrize("way", ["retry", "delay", "release"])
def test_a_head_that_waits_holds_its_own_group_only(queue: Queue, way: str) -> None:
    if way == "delay":
        (head,) = push(queue, "a", delay=10, now=at(0))
    else:
        (head,) = push(queue, "a", now=at(0))
        claim = claimed(queue, now=at(0))
        if way == "retry":
            claim.fail("no", now=at(0))
        else:
            claim.release(delay=10, now=at(0))
    _, b, _ = push(queue, "aba", now=at(0))
    assert ids_of(queue.pop_many(10, now=at(9))) == [b]
    assert ids_of(queue.pop_many(10, now=at(10))) == [head]


def test_redriven_letters_queue_up_again_in_order(queue: Queue) -> None:
    first, second, third, fourth = push(queue, "aaaa", now=at(0))
    for time in range(4):
        claimed(queue, now=at(time)).fail("no", retry_in=0, now=at(time))
    assert ids_of(queue.dead()) == [first, second]
    claim = claimed(queue, now=at(10))
    assert claim.id == third
    assert queue.redrive(ALL, now=at(10)) == 2
    assert queue.pop(now=at(10)) is None
    order = [claim.id]
    while claim:
        claim.complete(now=at(10))
        following = queue.pop(now=at(10))
        if following is None:
            break
        claim = following
        order.append(claim.id)
    assert order == [third, first, second, fourth]


def test_redrive_of_a_group_that_is_empty(queue: Queue) -> None:
    first, second, other = push(queue, "aab", now=at(0))
    for time in range(4):
        for claim in queue.pop_many(10, now=at(time)):
            claim.fail("no", retry_in=0, now=at(time))
    assert ids_of(queue.dead()) == [first, second, other]
    assert queue.redrive([second, first], now=at(9)) == 2
    claim = claimed(queue, now=at(9))
    assert (claim.id, claim.attempt) == (first, 1)
    assert queue.pop(now=at(9)) is None
    claim.complete(now=at(9))
    assert claimed(queue, now=at(9)).id == second


def test_purge_of_one_group_among_others(queue: Queue) -> None:
    """Messages in progress and dead letters stay, and the groups go on."""
    push(queue, "aabbc", now=at(0))
    for time in (0, 0):
        claimed(queue, now=at(time)).fail("no", retry_in=0, now=at(time))
    held = queue.pop_many(2, now=at(0))
    assert [claim.group for claim in held] == ["a", "b"]
    assert counts(queue, now=at(0)) == {"dead": 1, "in_progress": 2, "blocked": 1, "ready": 1}
    assert queue.purge() == 2
    assert counts(queue, now=at(0)) == {"dead": 1, "in_progress": 2}
    following = push(queue, "abc", now=at(0))
    assert ids_of(queue.pop_many(10, now=at(0))) == following[2:]
    queue.complete_many(held, now=at(0))
    assert ids_of(queue.pop_many(10, now=at(0))) == following[:2]


def test_complete_many_over_groups(queue: Queue) -> None:
    push(queue, "aabbcc")
    batch = queue.pop_many(2) + queue.pop_many(1)
    batch[1].complete()
    assert refuses(LeaseLost, queue.complete_many, batch).ids == (batch[1].id,)
    assert [claim.group for claim in queue.pop_many(10)] == ["a", "b", "c"]
    assert counts(queue) == {"in_progress": 3, "finished": 3}


def test_groups_are_freed_by_the_commit(queue: Queue, caller: Caller) -> None:
    """By the commit of a completion or a last failure; not before it, and not by a rollback."""
    _, _, a, b = push(queue, "abab")
    for claim in queue.pop_many(2):
        claim.release()
    claimed(queue).fail("once", retry_in=0)
    done, failed = reversed(queue.pop_many(2))
    for end in (caller.rollback, caller.commit):
        done.complete(connection=caller.connection)
        assert failed.fail("twice", connection=caller.connection) == "dead"
        assert counts(queue) == {"in_progress": 2, "blocked": 2}
        end()
        assert len(queue.pop_many(10)) == (0 if end == caller.rollback else 2)
    assert ids_of(queue.peek(state="in_progress")) == [a, b]


def test_pushes_are_seen_after_the_commit(queue: Queue, caller: Caller) -> None:
    for end in (caller.rollback, caller.commit):
        queue.push("one", group="a", connection=caller.connection)
        queue.push_many(["many"] * 3, group="a", connection=caller.connection)
        queue.push_many([NewMessage("each", group=group) for group in "ab"], connection=caller.connection)
        assert counts(queue) == {}
        end()
    assert [(claim.payload, claim.group) for claim in queue.pop_many(10)] == [("one", "a"), ("each", "b")]
    assert counts(queue) == {"in_progress": 2, "blocked": 4}


@pytest.mark.parametrize("size", [1, 1500])
def test_a_group_for_all_of_a_batch(queue: Queue, size: int) -> None:
    ids = queue.push_many(["x"] * size, group="é", delay=5, now=at(0))
    assert queue.pop(now=at(4)) is None
    claim = claimed(queue, now=at(5))
    assert (claim.id, claim.group) == (ids[0], "é")
    assert queue.stats().blocked == size - 1
    assert found(queue, ids[-1]).group == "é"


def test_a_message_without_its_group_is_refused(queue: Queue) -> None:
    refuses(BadInput, queue.push, "x")
    refuses(BadInput, queue.push_many, ["x"])
    refuses(BadInput, queue.push_many, [NewMessage("x", group="a"), "x"])
    refuses(BadInput, queue.push_many, ["x", NewMessage("x", group="a")])
    refuses(BadInput, queue.push_many, [NewMessage("x", group="a"), NewMessage("x")])
    refuses(BadInput, queue.push, "x", group="")
    refuses(BadInput, queue.push, "x", group=1)
    assert counts(queue) == {}


def test_many_consumers_keep_the_order_of_every_group(queue: Queue, place: Place) -> None:
    ids = push(queue, "abcde" * 12)
    seen: dict[str | None, list[int]] = {group: [] for group in "abcde"}

    def consume(queue: Consumer) -> None:
        for message in queue.consume(wait=0.5):
            seen[message.group].append(message.id)
            message.complete()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(consume, [place.open().queue("work") for _ in range(4)]))
    assert seen == {group: ids[number::5] for number, group in enumerate("abcde")}


def test_many_producers_and_consumers_leave_no_message_behind(queue: Queue, place: Place) -> None:
    """However a push and a completion of the same group interleave."""

    def produce(queue: Queue) -> None:
        for number in range(25):
            queue.push("x", group="ab"[number % 2])

    done = Event()
    with ThreadPoolExecutor(5) as threads:
        consumers = [threads.submit(complete_all, place.open().queue("work"), done) for _ in range(2)]
        list(threads.map(produce, [place.open().queue("work") for _ in range(3)]))
        done.set()
        completed = [id for consumer in consumers for id in consumer.result(60)]
    assert counts(queue) == {"finished": 75}
    assert len(completed) == 75
