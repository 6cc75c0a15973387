"""Several messages of one group under one claim: in order, and the group is closed until all of them are finished."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from threading import Barrier
from typing import Any

import pytest

from tablequeue import Backoff, Claim, Database, NewMessage, Queue, Rate
from tablequeue.aio import AsyncQueue
from tablequeue.errors import BadInput
from tablequeue.threads import Threads
from tests.callers import Caller
from tests.servers import Place
from tests.support import at, claimed, counts, found, ids_of, refuses


@pytest.fixture
def queue(db: Database) -> Queue:
    return db.create_queue("work", groups=True, payload="text", max_attempts=2, backoff=Backoff(base=10, jitter=0))


def push(queue: Queue, groups: str, **options: Any) -> list[int]:
    """Push a message for each letter, in the group of that letter."""
    return queue.push_many([NewMessage(group, group=group) for group in groups], **options)


def pop_run(queue: Queue, n: int = 10, **options: Any) -> list[Claim]:
    return queue.pop_many(n, same_group=True, **options)


def test_a_run_has_one_group_in_order(queue: Queue) -> None:
    ids = push(queue, "ababaab")
    claims = pop_run(queue)
    assert ids_of(claims) == [ids[0], ids[2], ids[4], ids[5]]
    assert len({claim.token for claim in claims}) == 1
    assert {claim.attempts for claim in claims} == {1}
    assert ids_of(pop_run(queue)) == [ids[1], ids[3], ids[6]]
    assert pop_run(queue) == []
    assert counts(queue) == {"in_progress": 7}


def test_a_run_is_at_most_n(queue: Queue) -> None:
    ids = push(queue, "aaaaa")
    run = pop_run(queue, 3)
    assert ids_of(run) == ids[:3]
    queue.complete_many(run)
    assert ids_of(pop_run(queue, 1)) == ids[3:4]
    assert pop_run(queue) == []


def test_the_group_is_closed_until_all_of_a_run_are_finished(queue: Queue) -> None:
    push(queue, "aaa")
    run = pop_run(queue)
    later = push(queue, "ab")
    assert ids_of(queue.pop_many(10)) == later[1:]
    for claim in reversed(run):
        assert queue.pop_many(10) == []
        assert pop_run(queue) == []
        claim.complete()
    assert ids_of(queue.pop_many(10)) == later[:1]


@pytest.mark.parametrize("way", ["fail", "release", "lease"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_one_that_is_to_be_tried_again_comes_first(queue: Queue, way: str, number: int) -> None:
    """Whichever of a run it is: after the others are finished, and before those behind them."""
    push(queue, "aaaa", now=at(0))
    run = pop_run(queue, 3, lease=50, now=at(0))
    again = run.pop(number)
    if way == "fail":
        assert again.fail("no", retry_in=0, now=at(1)) == "blocked"
    elif way == "release":
        again.release(now=at(1))
    queue.extend_many(run, 100, now=at(1))
    for claim in run:
        assert queue.pop_many(10, now=at(60)) == []
        claim.complete(now=at(60))
    first, second = pop_run(queue, now=at(61))
    assert (first.id, first.attempts) == (again.id, 1 if way == "release" else 2)
    assert second.attempts == 1
    errors = [] if way == "release" else ["no" if way == "fail" else "lease expired"]
    assert [error.error for error in found(queue, again.id).errors] == errors


def test_a_whole_run_is_tried_again_in_order(queue: Queue) -> None:
    ids = push(queue, "aaaaa", now=at(0))
    for claim in reversed(pop_run(queue, 3, now=at(0))):
        claim.fail("no", retry_in=0, now=at(1))
    run = pop_run(queue, 4, lease=10, now=at(2))
    assert ids_of(run) == ids[:4]
    queue.release_many(run, now=at(3))
    assert [claimed_and_completed(queue, at(4)) for _ in ids] == ids
    assert counts(queue, now=at(5)) == {"finished": 5}


def test_a_run_whose_lease_is_over_comes_again_in_order(queue: Queue) -> None:
    ids = push(queue, "aaaa", now=at(0))
    pop_run(queue, 3, lease=10, now=at(0))
    assert ids_of(pop_run(queue, 2, lease=10, now=at(20))) == ids[:2]
    assert [claimed_and_completed(queue, at(40)) for _ in range(2)] == ids[2:], "the first two have no attempts left"
    assert ids_of(queue.dead()) == ids[:2]


def test_a_delay_holds_the_group(queue: Queue) -> None:
    ids = push(queue, "aaa", now=at(0))
    run = pop_run(queue, 2, now=at(0))
    assert run[1].fail("no", now=at(1)) == "blocked"
    run[0].complete(now=at(1))
    assert queue.pop_many(10, now=at(10)) == []
    assert ids_of(pop_run(queue, now=at(11))) == ids[1:]


def test_a_dead_letter_leaves_the_run(queue: Queue) -> None:
    ids = push(queue, "aaa", now=at(0))
    run = pop_run(queue, 2, now=at(0))
    assert run[0].fail("no", retry=False, now=at(0)) == "dead"
    assert queue.pop_many(10, now=at(0)) == []
    run[1].complete(now=at(0))
    assert queue.redrive(now=at(0)) == 1
    assert ids_of(pop_run(queue, now=at(0))) == [ids[0], ids[2]]


def test_a_run_ends_before_one_that_is_due_later(queue: Queue) -> None:
    first = queue.push("x", group="a", now=at(0))
    second = queue.push("x", group="a", due=at(5), now=at(0))
    third = queue.push("x", group="a", delay=100, now=at(0))
    queue.push("x", group="a", now=at(0))
    run = pop_run(queue, now=at(10))
    assert ids_of(run) == [first, second]
    queue.complete_many(run, now=at(10))
    assert pop_run(queue, now=at(10)) == []
    assert len(pop_run(queue, now=at(100))) == 2
    assert ids_of(queue.peek(state="in_progress"))[0] == third


def test_expired_messages_are_passed_over(db: Database) -> None:
    queue = db.create_queue("work", groups=True, expires=1000)
    first = queue.push("x", group="a", now=at(0))
    queue.push("x", group="a", expires=5, now=at(0))
    third = queue.push("x", group="a", now=at(0))
    run = pop_run(queue, now=at(10))
    assert ids_of(run) == [first, third]
    queue.complete_many(run, now=at(10))
    assert pop_run(queue, now=at(10)) == []


def test_cancelled_ones_of_a_run(queue: Queue) -> None:
    """Those that wait are gone; those in progress are told, and end when they fail."""
    ids = push(queue, "aaaaa", now=at(0))
    queue.cancel(ids[1], now=at(0))
    run = pop_run(queue, 3, lease=10, now=at(0))
    assert ids_of(run) == [ids[0], ids[2], ids[3]]
    queue.cancel(ids_of(run)[:2], now=at(0))
    assert run[0].fail("no", now=at(1)) == "cancelled"
    assert queue.pop_many(10, now=at(1)) == []
    run[2].complete(now=at(1))
    assert ids_of(pop_run(queue, now=at(20))) == [ids[4]]


def test_a_paused_queue_gives_no_run(queue: Queue) -> None:
    push(queue, "aa")
    queue.pause()
    assert pop_run(queue) == []
    queue.resume()
    assert len(pop_run(queue)) == 2


@pytest.mark.parametrize("limit", [{"concurrency": 2}, {"concurrency": 3}])
def test_a_run_takes_a_place_for_each_message(db: Database, limit: dict[str, Any]) -> None:
    queue = db.create_queue("work", groups=True, payload="text", **limit)
    most = limit["concurrency"]
    ids = push(queue, "aaaab")
    run = pop_run(queue)
    assert ids_of(run) == ids[:most]
    assert queue.pop_many(10) == []
    run[1].complete()
    assert ids_of(pop_run(queue)) == ids[4:], "the group is closed, and another one has the place"


def test_a_run_is_within_the_rate(db: Database) -> None:
    queue = db.create_queue("work", groups=True, payload="text", rate=Rate(6, per=60, burst=2))
    ids = push(queue, "aaaa", now=at(0))
    run = pop_run(queue, now=at(0))
    assert ids_of(run) == ids[:2]
    queue.complete_many(run, now=at(1))
    assert pop_run(queue, now=at(1)) == []
    assert ids_of(pop_run(queue, now=at(30))) == ids[2:]


def test_a_strict_queue_is_one_group(db: Database) -> None:
    queue = db.create_queue("work", strict=True, payload="text")
    ids = queue.push_many("abcd")
    run = pop_run(queue, 3)
    assert ids_of(run) == ids[:3]
    assert queue.pop() is None
    run[0].fail("no", retry_in=0)
    queue.complete_many(run[1:])
    assert [claimed_and_completed(queue) for _ in range(2)] == [ids[0], ids[3]]


def test_the_run_before_it_is_completed(queue: Queue) -> None:
    ids = push(queue, "aaaa")
    run = pop_run(queue, 2)
    assert ids_of(pop_run(queue, 2, completing=run)) == ids[2:]
    assert counts(queue) == {"in_progress": 2, "finished": 2}


def test_what_has_no_runs_refuses_them(db: Database, queue: Queue, caller: Caller) -> None:
    refuses(BadInput, pop_run, db.create_queue("plain"))
    refuses(BadInput, pop_run, db.create_queue("fair", groups="fair"))
    refuses(BadInput, pop_run, db.create_queue("once", delivery="at_most_once"))
    refuses(BadInput, pop_run, queue, connection=caller.connection)
    refuses(BadInput, pop_run, queue, 0)
    push(queue, "a")
    (claim,) = pop_run(queue)
    refuses(BadInput, pop_run, queue, completing=[claim], connection=caller.connection)
    claim.complete()


def test_async_runs(queue: Queue) -> None:
    ids = push(queue, "abaa")

    async def main(work: AsyncQueue) -> None:
        run = await work.pop_many(2, same_group=True)
        assert [claim.id for claim in run] == ids[::2]
        (last,) = await work.pop_many(2, same_group=True, completing=run)
        assert last.id in ids[1::2]

    threads = Threads(1)
    try:
        asyncio.run(main(AsyncQueue(queue, threads)))
    finally:
        threads.close()


def test_finishes_of_one_run_at_once_leave_no_group_behind(queue: Queue, place: Place) -> None:
    """Two threads finish two of a run at the same time, each in its own way; then the group goes on, in order."""
    ways = ["complete", "fail", "release"]
    queues = [place.open().queue("work") for _ in range(2)]
    meet = Barrier(2, timeout=60)

    def finish(queue: Queue, claim: Claim, way: str) -> None:
        mine = Claim.of(queue, claim.id, claim.token)
        meet.wait()
        if way == "fail":
            mine.fail("no", retry_in=0)
        else:
            getattr(mine, way)()

    with ThreadPoolExecutor(2) as threads:
        for pair in product(ways, ways):
            ids = push(queue, "aaa")
            list(threads.map(finish, queues, pop_run(queue, 2), pair))
            left = [id for id, way in zip(ids, pair, strict=False) if way != "complete"]
            assert [claimed_and_completed(queue) for _ in range(len(left) + 1)] == [*left, ids[2]]
            assert queue.pop() is None


def claimed_and_completed(queue: Queue, now: Any = None) -> int:
    claim = claimed(queue, now=now)
    assert queue.pop(now=now) is None
    claim.complete(now=now)
    return claim.id
