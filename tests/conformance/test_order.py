"""The order that a definition promises, by a reference comparator."""

from __future__ import annotations

import pytest

from tablequeue import Queue
from tests.checks import check_order
from tests.servers import Place
from tests.support import at, claimed, ids_of


@pytest.mark.parametrize("seed", range(4))
def test_a_random_life(queue: Queue, seed: int) -> None:
    check_order(queue, seed)


def test_fifo_one_by_one(place: Place) -> None:
    queue = place.open().create_queue("work", order="fifo")
    ids = [queue.push(number) for number in range(5)] + queue.push_many(range(5, 1500))
    popped = [claimed(queue).id for _ in range(20)] + ids_of(queue.pop_many(2000))
    assert popped == ids


def test_fifo_a_message_that_comes_back_is_first_again(place: Place) -> None:
    queue = place.open().create_queue("work", order="fifo")
    first, second, third = queue.push_many("abc")
    claim = claimed(queue)
    assert claimed(queue).id == second
    claim.fail("again", retry_in=0)
    claim = claimed(queue)
    assert claim.id == first
    claim.release()
    assert ids_of(queue.pop_many(2)) == [first, third]


def test_fifo_goes_by_id_not_by_due_time(place: Place) -> None:
    queue = place.open().create_queue("work", order="fifo")
    late = queue.push("late", delay=20, now=at(0))
    soon = queue.push("soon", delay=10, now=at(0))
    assert ids_of(queue.pop_many(2, now=at(30))) == [late, soon]
