"""Many consumers, dead consumers, forked consumers: one claim, one consumer, and no message lost."""

from __future__ import annotations

import math
import os
import statistics
from collections import Counter, defaultdict
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
import sqlalchemy as sa

from tablequeue import Database, Order, Queue, Rate
from tests import crowd
from tests.checks import check_one_claim_one_consumer
from tests.crowd import Consumer, Crowd, Producer, answer, started
from tests.servers import KINDS, Kind, Place
from tests.support import at, claimed, counts, design_group, ids_of


def test_two_sessions_share_the_messages_out(place: Place) -> None:
    place.open().create_queue("work", payload="text").push_many(map(str, range(6)))
    ada, bob = place.open("ada").queue("work"), place.open("bob").queue("work")
    claims = [claimed(queue) for queue in (ada, bob, bob, ada, ada, bob)]
    assert [claim.payload for claim in claims] == list("012345")
    assert ada.pop() is None
    assert bob.pop() is None
    consumers = [message.consumer for message in ada.peek(10, state="in_progress")]
    assert consumers == ["ada", "bob", "bob", "ada", "ada", "bob"]
    for claim in claims:
        claim.complete()


def test_a_claim_passes_over_what_another_transaction_is_claiming(place: Place, kind: Kind) -> None:
    if not kind.side_by_side:
        pytest.skip("there is one writer at a time")
    queue = place.open().create_queue("work", payload="text")
    first, second = queue.push_many([*"ab"])
    with place.sa_engine().connect() as connection:
        assert claimed(queue, connection=connection).id == first
        assert claimed(place.open().queue("work")).id == second, "it neither waits nor gets the same message"
        connection.rollback()
    assert claimed(place.open().queue("work")).id == first


def test_threads_at_the_same_moment(place: Place) -> None:
    queue = place.open().create_queue("work", payload="text")
    check_one_claim_one_consumer([queue] + [place.open().queue("work") for _ in range(7)])


def test_threads_that_share_one_queue(place: Place) -> None:
    queue = place.open().create_queue("work", payload="text")
    for _ in range(5):
        check_one_claim_one_consumer([queue] * 8)


def test_a_crowd_of_processes(place: Place, kind: Kind) -> None:
    queue = place.open().create_queue("crowd", payload="text", lease=3600)
    barrier = crowd.processes.Barrier(kind.crowd, timeout=crowd.PATIENCE)
    with started(kind.crowd, crowd.push_pop_complete, lambda n: (place, n, barrier)) as pipes:
        accounts: list[crowd.Account] = [answer(pipe) for pipe in pipes]
    pushed = {id: payload for account in accounts for id, payload in account.pushed.items()}
    popped = Counter(message for account in accounts for message in account.popped)
    assert len(pushed) == kind.crowd * crowd.ROUNDS * crowd.PUSHED_PER_ROUND, "no id is given twice"
    assert popped == Counter(pushed.items()), "each message is delivered once, none is lost"
    assert counts(queue) == {"finished": len(pushed)}
    assert {message.attempts for message in queue.history(len(pushed))} == {1}


# A heap that has the texts of a fifo would be the same crowd twice.
CROWDS = [(kind, order) for kind in KINDS for order in ("fifo", "heap") if order == "fifo" or not kind.heap_is_fifo]


@pytest.mark.parametrize(("kind", "order"), CROWDS, ids=[f"{kind.name}-{order}" for kind, order in CROWDS])
def test_hundreds_of_producers_and_consumers(place: Place, kind: Kind, order: Order) -> None:
    queue = place.open().create_queue("crowd", payload="text", lease=3600, order=order)
    processes, threads = kind.producers_and_consumers
    consumers = check_crowd(queue, place, Crowd(processes, threads, messages=kind.messages))
    print(fairness(consumers))


def test_a_crowd_on_groups(place: Place) -> None:
    queue = place.open().create_queue("crowd", payload="text", lease=3600, groups=True)
    group = Crowd(8, 8, messages=20, groups=12)
    consumers = check_crowd(queue, place, group)
    for number in range(group.groups):
        producers = {2 * member + 1 for member in range(group.size) if member % group.groups == number}
        check_one_by_one([row for row in rows_of(consumers) if int(row[1].split("/")[0]) in producers])
    print(fairness(consumers))


def test_a_crowd_in_strict_order(place: Place) -> None:
    queue = place.open().create_queue("crowd", payload="text", lease=3600, strict=True)
    consumers = check_crowd(queue, place, Crowd(4, 8, messages=10))
    check_one_by_one(rows_of(consumers))


def test_a_crowd_creates_one_queue(place: Place) -> None:
    size = 8
    barrier = crowd.processes.Barrier(size, timeout=crowd.PATIENCE)
    with started(size, crowd.create, lambda n: (place, barrier)) as pipes:
        ids = [answer(pipe) for pipe in pipes]
    assert sorted(ids) == ids_of(place.open().queue("work").peek(size + 1))


def test_the_messages_of_a_killed_consumer_come_back_once(place: Place) -> None:
    queue = place.open().create_queue("work", payload="text")
    ids = queue.push_many(map(str, range(10)))
    with started(1, crowd.hold_a_batch, lambda n: (place, 7)) as (pipe,):
        held = answer(pipe)
    assert sorted(held) == ids[:7]
    assert ids_of(queue.pop_many(100)) == ids[7:], "while the lease holds, nobody else gets them"
    back = place.open().queue("work").pop_many(100, now=at(0))
    assert sorted(ids_of(back)) == ids, "after the lease, all of them"
    assert queue.pop(now=at(0)) is None, "and once"
    assert {claim.attempt for claim in back} == {2}
    for message in queue.peek(100, state="in_progress"):
        (error,) = message.errors
        assert error.error == "lease expired"
        assert (error.consumer == "the dead") == (message.id in held)


def test_no_group_exceeds_its_limit_whatever_is_killed(place: Place) -> None:
    options: dict[str, Any] = {"per_group": 2, "concurrency": 11, "lease": 1, "max_attempts": 100}
    queue = place.open().create_queue("limited", payload="text", groups="fair", **options)
    check_limits_of_groups(place, queue, consumers=5, killed=3, pushes=4)


def test_no_group_is_claimed_faster_than_its_rate(place: Place) -> None:
    rate = Rate(100, burst=3)
    queue = place.open().create_queue("limited", payload="text", groups="fair", group_rate=rate)
    with started(4, crowd.claim_at_a_rate, lambda number: (place, number, 4)) as pipes:
        for word in ("pushed", "done"):
            assert {answer(pipe) for pipe in pipes} == {word}
    check_rates_of_groups(queue, rate)


def check_limits_of_groups(place: Place, queue: Queue, consumers: int, killed: int, pushes: int) -> Counter[int]:
    """Run consumers, some of which are killed, and count what is in progress, again and again.

    Return how often each number of a group was seen.
    """
    seen: Counter[int] = Counter()
    definition = queue.definition
    count = sa.text(
        f"select count(*) from {place.table('limited')} "  # noqa: S608 (checked names)
        "where state = 'in_progress' group by group_key"
    )

    def look(watch: sa.Connection) -> None:
        numbers = watch.execute(count).scalars().all()
        assert max(numbers, default=0) <= (definition.per_group or math.inf)
        assert sum(numbers) <= (definition.concurrency or math.inf)
        seen.update(numbers)

    with (
        place.sa_engine().connect().execution_options(isolation_level="AUTOCOMMIT") as watch,
        started(consumers, crowd.live_with_limits, lambda number: (place, number, pushes)) as pipes,
    ):
        with started(killed, crowd.live_with_limits, lambda number: (place, consumers + number, pushes)) as others:
            for pipe in (*pipes, *others):
                while not pipe.poll():
                    look(watch)
                assert answer(pipe) == "pushed"
        while not all(pipe.poll() for pipe in pipes):
            look(watch)
        assert {answer(pipe) for pipe in pipes} == {"done"}
    assert seen[definition.per_group or 1], "the limit was reached"
    left = counts(queue)
    assert {*left} <= {"finished", "cancelled"}, left
    assert sum(left.values()) == (consumers + killed) * pushes * len(crowd.GROUPS)
    return seen


def check_rates_of_groups(queue: Queue, rate: Rate) -> None:
    """In no window of the history was more claimed of a group than its rate allows."""
    times = defaultdict(list)
    for message in queue.history(1_000_000):
        assert message.popped_at is not None
        times[message.group].append(message.popped_at)
    for claims in times.values():
        claims.sort()
        for number, last in enumerate(claims):
            for first in range(max(0, number - 50), number):
                steps = (last - claims[first]) / timedelta(microseconds=rate.step)
                assert number - first + 1 <= rate.burst + steps


@pytest.mark.parametrize("size", [10, 1500])
def test_a_killed_producer_leaves_nothing_half_done(place: Place, size: int) -> None:
    queue = place.open().create_queue("work", payload="text")
    with started(1, crowd.push_and_never_commit, lambda n: (place, size)) as (pipe,):
        assert len(answer(pipe)) == size
        assert counts(queue) == {}
    assert counts(queue) == {}
    id = queue.push("later")
    assert claimed(queue).id == id


def test_a_consumer_killed_in_its_transaction_gives_its_messages_back_at_once(place: Place) -> None:
    queue = place.open().create_queue("work", payload="text")
    ids = queue.push_many(map(str, range(10)))
    with started(1, crowd.pop_and_never_commit, lambda n: (place, 7)) as (pipe,):
        assert answer(pipe) == ids[:7]
    back: list[int] = []
    while len(back) < 10:  # the server may take a moment to notice that the process is dead
        back += ids_of(queue.pop_many(10))
    assert sorted(back) == ids
    assert {message.attempts for message in queue.peek(10, state="in_progress")} == {1}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_database_goes_on_working_on_both_sides_of_a_fork(place: Place) -> None:
    queue = place.open().create_queue("work", payload="text")
    queue.push_many([*"ab"])
    before = claimed(queue)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = b"failed"
        try:
            claim = claimed(queue)
            queue.push("from the child")
            claim.complete()
            said = claim.payload.encode()
        finally:
            os.write(write, said)
            os._exit(0)
    os.close(write)
    queue.push("from the parent")
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == b"b"
    os.waitpid(child, 0)
    before.complete()
    rest = queue.pop_many(10)
    assert {claim.payload for claim in rest} == {"from the child", "from the parent"}
    queue.complete_many(rest)
    assert counts(queue) == {"finished": 4}


def test_closing_is_not_the_end(db: Database) -> None:
    queue = db.create_queue("work")
    db.close()
    queue.push(1)
    db.close()
    claimed(queue).complete()


# -- private -----------------------------------------------------------------------------------------------------------


def check_crowd(queue: Queue, place: Place, group: Crowd) -> list[Consumer]:
    """With a crowd, each message reaches one consumer once, and no thread gets an error."""
    barrier = crowd.processes.Barrier(group.processes, timeout=crowd.PATIENCE)
    done = crowd.processes.Semaphore(0)
    with started(group.processes, crowd.produce_and_consume, lambda n: (place, group, n, barrier, done)) as pipes:
        for _ in range(group.total):
            assert done.acquire(timeout=crowd.PATIENCE), f"messages are not completed: {counts(queue)}"
        for number in range(group.size):
            queue.push(crowd.STOP, **design_group(queue, f"stop {number}"))
        members = [member for pipe in pipes for member in answer(pipe)]
    errors = [member for member in members if isinstance(member, Exception)]
    assert not errors, f"{len(errors)} members got an error: {errors[0]!r}"
    consumers = [member for member in members if isinstance(member, Consumer)]
    pushed = {
        id: payload for member in members if isinstance(member, Producer) for id, payload in member.pushed.items()
    }
    popped = Counter((id, payload) for id, payload, _, _ in rows_of(consumers))
    assert len(pushed) == group.total, "no id is given twice"
    assert popped == Counter(pushed.items()), "each message is delivered once, none is lost"
    assert counts(queue) == {"finished": group.total + group.size}
    assert {message.attempts for message in queue.history(group.total + group.size)} == {1}
    return consumers


def rows_of(consumers: list[Consumer]) -> list[tuple[int, str, int, int]]:
    return [row for consumer in consumers for row in consumer.messages]


def check_one_by_one(rows: list[tuple[int, str, int, int]]) -> None:
    """Messages are processed one at a time, and those of each producer in the order of its pushes."""
    rows = sorted(rows, key=lambda row: row[2])
    for (_, first, _, ended), (_, second, began, _) in pairwise(rows):
        assert ended <= began, f"{second} was had while {first} was"
    numbers: dict[str, list[int]] = defaultdict(list)
    for _, payload, _, _ in rows:
        producer, number = payload.split("/")
        numbers[producer].append(int(number))
    for producer, sequence in numbers.items():
        assert sequence == list(range(len(sequence))), f"the messages of producer {producer} are out of order"


def fairness(consumers: list[Consumer]) -> str:
    """Print how the messages were distributed."""
    shares = sorted(len(consumer.messages) for consumer in consumers)
    mean, median = statistics.mean(shares), statistics.median(shares)
    return (
        f"{sum(shares)} messages, {len(shares)} consumers: "
        f"slowest {shares[0]}, median {median:g}, fastest {shares[-1]}; "
        f"slowest / mean {shares[0] / mean:.2f}, slowest / median {shares[0] / median:.2f}"
    )
