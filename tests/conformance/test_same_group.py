"""Several messages of one group under one claim: in order, and the group is closed until all of them are finished."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from random import Random
from threading import Barrier, Lock
from typing import Any

import pytest

from tablequeue import ALL, Backoff, Claim, Database, NewMessage, Queue, Rate
from tablequeue.aio import AsyncQueue
from tablequeue.aio.threads import Threads
from tablequeue.errors import BadInput
from tablequeue.ext import context_of
from tests.callers import Caller
from tests.servers import Place
from tests.support import at, claimed, counts, found, ids_of, refuses

pytestmark = pytest.mark.quick


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
    assert {claim.attempt for claim in claims} == {1}
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
    assert (first.id, first.attempt) == (again.id, 1 if way == "release" else 2)
    assert second.attempt == 1
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
    assert queue.redrive(ALL, now=at(0)) == 1
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
    ids = queue.push_many([*"abcd"])
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


@pytest.mark.parametrize("open", [False, True], ids=["closed", "open"])
def test_finishes_of_one_run_at_once_leave_no_group_behind(queue: Queue, place: Place, open: bool) -> None:
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
            list(threads.map(finish, queues, (pop_open if open else pop_run)(queue, 2), pair))
            left = [id for id, way in zip(ids, pair, strict=False) if way != "complete"]
            assert [claimed_and_completed(queue) for _ in range(len(left) + 1)] == [*left, ids[2]]
            assert queue.pop() is None


# -- open runs ---------------------------------------------------------------------------------------------------------


def pop_open(queue: Queue, n: int = 10, **options: Any) -> list[Claim]:
    return queue.pop_many(n, same_group="open", **options)


@pytest.mark.parametrize("way", ["fail", "release", "extend", "lease"])
def test_an_open_run_closes_only_what_is_behind_it(queue: Queue, way: str) -> None:
    ids = push(queue, "aaaaa", now=at(0))

    def back(claim: Claim, time: int) -> None:
        if way == "fail":
            claim.fail("no", retry_in=0, now=at(time))
        elif way == "release":
            claim.release(now=at(time))
        else:
            claim.extend(0 if way == "extend" else 1, now=at(time if way == "extend" else time - 1))

    run = pop_open(queue, 4, lease=100, now=at(0))
    assert ids_of(run) == ids[:4]
    assert pop_open(queue, now=at(1)) == []
    back(run[1], 2)
    assert pop_open(queue, now=at(2)) == [], "the second one waits for the first one"
    back(run[0], 3)
    (first,) = pop_open(queue, 1, lease=100, now=at(3))
    assert first.id == ids[0], "beside the later ones"
    assert pop_open(queue, now=at(3)) == []
    first.complete(now=at(4))
    (second,) = pop_open(queue, lease=100, now=at(4))
    assert second.id == ids[1], "the third one ends the run"
    back(run[3], 5)
    assert pop_open(queue, now=at(5)) == []
    second.complete(now=at(5))
    assert pop_open(queue, now=at(5)) == []
    run[2].complete(now=at(6))
    assert ids_of(pop_open(queue, now=at(6))) == ids[3:]


def test_a_closed_run_ends_before_an_open_one(queue: Queue) -> None:
    ids = push(queue, "aaaa", now=at(0))
    run = pop_open(queue, 3, now=at(0))
    for claim in run[:2]:
        claim.release(now=at(1))
    closed = pop_run(queue, now=at(1))
    assert ids_of(closed) == ids[:2]
    closed[0].release(now=at(2))
    assert pop_open(queue, now=at(2)) == [], "a closed run is closed until all of it are finished"
    closed[1].complete(now=at(2))
    assert ids_of(pop_open(queue, now=at(2))) == ids[:1]


def test_open_runs_take_turns_over_the_groups(db: Database, place: Place) -> None:
    """A group that was claimed from comes after the others, whose oldest message comes first; then a round begins."""
    queue = db.create_queue("work", groups=True, payload="text", history="none")
    groups = ["a", "b", "ü'\"\\\n☃"]
    for group in groups * 4:
        queue.push(group, group=group)
    seen = []
    for turn in range(7):
        (claim,) = pop_open(queue, 1)
        seen.append(claim.group)
        claim.complete() if turn < 3 else claim.release()
    assert seen == [*groups, *groups, groups[0]]
    queue.push("late", group="late")
    assert [claim.group for _ in range(3) for claim in pop_open(queue, 1)] == [groups[1], groups[2], "late"]
    other = place.open().queue("work")
    assert [claim.group for claim in pop_open(other, 1)] == [groups[0]], "another process has its own rounds"
    assert context_of(other).table.passed == (groups[0],)


@pytest.mark.parametrize("seed", range(4))
def test_open_runs_keep_the_order_whatever_happens(db: Database, seed: int) -> None:
    """A claim has the first messages that wait, and none behind one in progress of its group."""
    queue = db.create_queue("work", groups=True, payload="text", max_attempts=99)
    dice = Random(seed)
    waiting: dict[int, str] = {}
    held: dict[int, tuple[str, Claim]] = {}
    passed: set[str] = set()
    for _ in range(150):
        action = dice.choice(["push", "pop", "pop", "complete", "back", "back"])
        if action == "push":
            groups = "".join(dice.choices("ab", k=dice.randint(1, 4)))
            waiting |= dict(zip(push(queue, groups), groups, strict=True))
        elif action == "pop":
            n = dice.randint(1, 5)
            expected: list[int] = []
            for id, group in sorted(waiting.items(), key=lambda one: (one[1] in passed, one[0])):
                others = [other for other, (of, _) in held.items() if of == group]
                if not any(other < id for other in others):
                    end = min(others, default=1 << 62)
                    expected = [other for other, of in sorted(waiting.items()) if of == group and id <= other < end][:n]
                    break
            claims = pop_open(queue, n)
            assert ids_of(claims) == expected
            for group in {claim.group or "" for claim in claims}:
                passed = {group} if group in passed else passed | {group}
            held |= {claim.id: (waiting.pop(claim.id), claim) for claim in claims}
        elif held:
            id = dice.choice(sorted(held))
            group, claim = held.pop(id)
            if action == "complete":
                claim.complete()
            else:
                claim.release()
                waiting[id] = group


def test_open_runs_of_many_consumers_never_overtake(place: Place) -> None:
    """What a consumer claims is not behind a message of its group that another one had before and still has."""
    place.open().create_queue("work", groups=True, payload="text", max_attempts=999)
    queues = [place.open().queue("work") for _ in range(4)]
    push(queues[0], "ab" * 30)
    together = Barrier(len(queues), timeout=60)
    held: dict[object, Claim] = {}
    overtaken: list[tuple[int, int]] = []
    lock = Lock()

    def consume(number: int) -> int:
        queue, dice, done = queues[number], Random(number), 0
        together.wait()
        while True:
            before = dict(held)
            claims = pop_open(queue, 3)
            mine = [(object(), claim) for claim in claims]
            with lock:
                there = [claim for key, claim in before.items() if key in held]
                overtaken.extend(
                    (one.id, two.id) for one in there for two in claims if one.group == two.group and one.id < two.id
                )
                held.update(mine)
            if not claims and sum(number for state, number in counts(queue).items() if state != "finished") == 0:
                return done
            dice.shuffle(mine)
            for key, claim in mine:
                with lock:
                    del held[key]
                if dice.random() < 0.4:
                    claim.release()
                else:
                    claim.complete()
                    done += 1

    with ThreadPoolExecutor(len(queues)) as threads:
        assert sum(threads.map(consume, range(len(queues)))) == 60
    assert overtaken == []


def claimed_and_completed(queue: Queue, now: Any = None) -> int:
    claim = claimed(queue, now=now)
    assert queue.pop(now=now) is None
    claim.complete(now=now)
    return claim.id
