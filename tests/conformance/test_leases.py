"""Leases expire, messages are redelivered, and the previous consumer can no longer change them."""

from __future__ import annotations

from math import inf

import pytest

from tablequeue import ALL, Backoff, Queue
from tablequeue.errors import LeaseLost
from tablequeue.ext import context_of
from tablequeue.verbs import claim
from tests.checks import check_fence_after_reclaim, check_poison_is_counted_at_claim
from tests.servers import Place
from tests.support import FINISHING, at, check_fenced, claimed, counts, found, ids_of, refuses

pytestmark = [
    pytest.mark.quick,
    pytest.mark.needs("plain_push"),
    pytest.mark.designs("claims"),
    pytest.mark.variants("procedures"),
]


def test_a_message_stays_with_its_consumer_until_the_lease_ends(queue: Queue) -> None:
    id = queue.push("x", now=at(0))
    claimed(queue, lease=60, now=at(0))
    assert queue.pop(now=at(59.999999)) is None
    again = claimed(queue, now=at(60))
    assert (again.id, again.attempt, again.popped_at) == (id, 2, at(60))
    message = found(queue, id)
    assert message.first_popped_at == at(0)
    assert [(error.attempt, error.at, error.error) for error in message.errors] == [(1, at(60), "lease expired")]


@pytest.mark.parametrize("verb", FINISHING)
def test_late_is_not_lost(queue: Queue, verb: str) -> None:
    """A message can be finished after its lease has expired, as long as nobody else has claimed it."""
    queue.push("x")
    claim = claimed(queue, lease=0)
    FINISHING[verb](claim)
    assert (
        counts(queue)
        == {
            "complete": {"finished": 1},
            "fail": {"scheduled": 1},
            "fail_at_once": {"ready": 1},
            "release": {"ready": 1},
            "extend": {"in_progress": 1},
        }[verb]
    )


@pytest.mark.needs("many_in_progress")
def test_a_claim_has_no_message_twice(queue: Queue) -> None:
    """A lease may end while the claim sweeps for more messages, and then finds this one again."""
    queue.push("x")
    context_of(queue).table.next_sweep = inf
    (only,) = queue.pop_many(3, lease=0)
    queue.complete(only)


def test_the_fence(place: Place, queue: Queue) -> None:
    check_fence_after_reclaim(queue, place.open().queue("work"))


@pytest.mark.parametrize("verb", [verb for verb in FINISHING if verb != "extend"])
def test_a_finished_claim_is_a_lost_one(queue: Queue, verb: str) -> None:
    queue.push("x")
    claim = claimed(queue)
    FINISHING[verb](claim)
    check_fenced(queue, claim)


@pytest.mark.needs("many_in_progress")
def test_the_fence_of_a_batch(place: Place, queue: Queue) -> None:
    ids = queue.push_many([*"abcd"], now=at(0))
    batch = queue.pop_many(4, lease=10, now=at(0))
    batch[1].extend(100, now=at(0))
    reclaimed = place.open().queue("work").pop_many(10, now=at(10))
    assert sorted(ids_of(reclaimed)) == sorted(set(ids) - {batch[1].id})
    error = refuses(LeaseLost, queue.complete_many, batch)
    assert error.ids == tuple(sorted(ids_of(reclaimed)))
    assert counts(queue) == {"in_progress": 3, "finished": 1}
    queue.complete_many(reclaimed)


def test_after_purge_or_drop_of_the_message(place: Place, queue: Queue) -> None:
    queue.push("x", now=at(0))
    claim = claimed(queue, lease=10, now=at(0))
    other = place.open().queue("work")
    claimed(other, lease=10, now=at(10))
    claimed(other, lease=10, now=at(20))
    assert other.pop(now=at(30)) is None
    assert other.purge_dead(ALL) == 1
    check_fenced(queue, claim)


def test_poison(queue: Queue) -> None:
    check_poison_is_counted_at_claim(queue)


@pytest.mark.needs("many_in_progress")
def test_poison_of_a_whole_batch(queue: Queue) -> None:
    ids = queue.push_many(map(str, range(50)), now=at(0))
    for attempt in range(queue.definition.max_attempts):
        assert len(queue.pop_many(50, lease=1, now=at(attempt))) == 50
    assert queue.pop_many(50, now=at(100)) == []
    assert ids_of(queue.dead()) == ids


def test_words_and_deaths_are_kept_side_by_side(place: Place) -> None:
    queue = place.open().create_queue("work", max_attempts=3, backoff=Backoff(base=0, jitter=0))
    queue.push("x", now=at(0))
    claimed(queue, now=at(0)).fail("said", now=at(1))
    claimed(queue, lease=5, now=at(1))
    claimed(queue, now=at(6)).fail("said again", now=at(7))
    (letter,) = queue.dead()
    assert [error.error for error in letter.errors] == ["said", "lease expired", "said again"]
    assert [error.attempt for error in letter.errors] == [1, 2, 3]


def test_a_claim_that_finds_nothing_returns_nothing(queue: Queue) -> None:
    """Also under the token of the claim before it, as the second claim of a batch has it."""
    queue.push("x")
    context = context_of(queue)
    _, params = claim.leased(context, 1, None, None, None)
    assert len(context.run(context.messages.claim, params)) == 1
    assert [*context.run(context.messages.claim, params)] == []
