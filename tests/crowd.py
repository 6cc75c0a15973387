"""Processes for the tests, and the work of those of test_concurrency.py. Fresh processes can import this module."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from random import Random
from threading import BrokenBarrierError
from time import monotonic_ns
from typing import Any

from tablequeue import ALL, LeaseLost, NewMessage
from tests.servers import Place

# A server of fresh processes, not a fork of the tests: nothing is inherited, as between an application's own
# processes. It has imported the library once, which would otherwise be most of the time that 64 of them take.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["tests.preloaded"])

# Seconds after which a process that does not answer fails the test. An answer takes a few seconds.
PATIENCE = 120

ROUNDS = 4
PUSHED_PER_ROUND = 3


@contextmanager
def started(n: int, work: Callable[..., None], arguments: Callable[[int], tuple[Any, ...]]) -> Iterator[list[Any]]:
    """Run `n` processes, each with a pipe as its last argument. They are killed (SIGKILL) at the end of the block."""
    pipes: list[Connection] = []
    workers = []
    try:
        for number in range(n):
            ours, theirs = processes.Pipe()
            worker = processes.Process(target=work, args=(*arguments(number), theirs))
            worker.start()
            theirs.close()
            pipes.append(ours)
            workers.append(worker)
        yield pipes
    finally:
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join()
            worker.close()
        for pipe in pipes:
            pipe.close()


def answer(pipe: Connection) -> Any:
    """Return what a process sends, or raise an error if it has died."""
    assert pipe.poll(PATIENCE), "a process does not answer"
    return pipe.recv()


GROUPS = (None, "a", "A", "ä", "\u65e5" * 255, "x" * 254 + "y", "x" * 254 + "z", "'; --", "0")


def live_with_limits(place: Place, number: int, pushes: int, pipe: Connection) -> None:
    """Push to all groups, then do at random what a consumer does, until nothing is left or the process is killed."""
    chance = Random(number)
    queue = place.open(f"process {number}").queue("limited")
    queue.push_many([NewMessage(group or "", group=group) for group in GROUPS for _ in range(pushes)])
    pipe.send("pushed")
    while (left := queue.stats()).ready + left.scheduled + left.in_progress:
        for claim in queue.pop_many(chance.choice((1, 1, 1, 3, 20))):
            end = chance.random()
            with suppress(LeaseLost):
                if end < 0.1:
                    claim.release()
                elif end < 0.2:
                    claim.fail("no", retry_in=0)
                elif end < 0.25:
                    queue.cancel(claim.id)
                    claim.fail("stopped")
                elif end < 0.3:
                    claim.fail("dead", retry=False)
                    queue.redrive(ALL)
                elif end < 0.98:
                    claim.complete()  # else its lease expires
    pipe.send("done")


def claim_at_a_rate(place: Place, number: int, pushes: int, pipe: Connection) -> None:
    """Push to all groups, then complete messages until none is left."""
    queue = place.open(f"process {number}").queue("limited")
    queue.push_many([NewMessage(group or "", group=group) for group in GROUPS for _ in range(pushes)])
    pipe.send("pushed")
    while (left := queue.stats()).ready + left.in_progress:
        queue.complete_many(queue.pop_many(1 + number % 3))
    pipe.send("done")


@dataclass
class Account:
    """The calls of one process."""

    pushed: dict[int, str] = field(default_factory=dict)
    popped: list[tuple[int, str]] = field(default_factory=list)


def push_pop_complete(place: Place, number: int, barrier: Any, pipe: Connection) -> None:
    """Push and pop in rounds, at the same time as all the others. When all have pushed, pop the remaining messages."""
    database = place.open(f"process {number}")
    queue = database.queue("crowd")
    account = Account()
    barrier.wait()
    for round in range(ROUNDS):
        payloads = [f"{number}/{round}/{place}" for place in range(PUSHED_PER_ROUND)]
        account.pushed.update(zip(queue.push_many(payloads), payloads, strict=True))
        claim = queue.pop()
        if claim is not None:
            account.popped.append((claim.id, claim.payload))
            claim.complete()
    try:
        barrier.wait()
    except BrokenBarrierError:
        raise SystemExit("another process did not come this far") from None
    while batch := queue.pop_many(5):
        account.popped.extend((claim.id, claim.payload) for claim in batch)
        queue.complete_many(batch)
    place.close()
    pipe.send(account)


# The payload that tells a consumer that no more messages will come.
STOP = "stop"


@dataclass
class Consumer:
    """The messages of one consumer: id, payload, and the times of its claim and its end."""

    name: str
    messages: list[tuple[int, str, int, int]] = field(default_factory=list)


@dataclass
class Producer:
    """The ids that one producer pushed."""

    name: str
    pushed: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Crowd:
    """Equal numbers of producers and consumers, in processes and threads. Each has connections of its own."""

    processes: int
    threads: int
    messages: int
    """The number of messages of each producer."""
    groups: int = 0
    """The number of groups that the messages go to in turn; 0 for no groups."""

    @property
    def size(self) -> int:
        return self.processes * self.threads // 2

    @property
    def total(self) -> int:
        return self.size * self.messages

    def group(self, number: int) -> dict[str, Any]:
        return {"group": f"g{number % self.groups}"} if self.groups else {}


def produce_and_consume(place: Place, crowd: Crowd, number: int, barrier: Any, done: Any, pipe: Connection) -> None:
    """Run the threads of one process, each a consumer or a producer. `done` counts completed messages."""
    members = range(number * crowd.threads, (number + 1) * crowd.threads)
    names = {member: f"{'producer' if member % 2 else 'consumer'} {member}" for member in members}
    queues = {member: place.open(name).queue("crowd") for member, name in names.items()}

    def consume(member: int) -> Consumer:
        consumer = Consumer(names[member])
        for claim in queues[member].consume():
            had = monotonic_ns()
            if claim.payload != STOP:
                consumer.messages.append((claim.id, claim.payload, had, monotonic_ns()))
            claim.complete()
            if claim.payload == STOP:
                break
            done.release()
        return consumer

    def produce(member: int) -> Producer:
        producer = Producer(names[member])
        for n in range(crowd.messages):
            payload = f"{member}/{n}"
            producer.pushed[queues[member].push(payload, **crowd.group(member // 2))] = payload
        return producer

    def work(member: int) -> Consumer | Producer | Exception:
        try:
            return produce(member) if member % 2 else consume(member)
        except Exception as error:
            # No consumer may wait for messages that will not come.
            for _ in range(crowd.total):
                done.release()
            return error

    with ThreadPoolExecutor(crowd.threads) as threads:
        barrier.wait()
        members_did = list(threads.map(work, members))
    place.close()
    pipe.send(members_did)


def hold_a_batch(place: Place, n: int, pipe: Connection) -> None:
    """Pop a batch, report it, and hold it until killed."""
    batch = place.open("the dead").queue("work").pop_many(n)
    pipe.send([claim.id for claim in batch])
    pipe.recv()


def push_and_never_commit(place: Place, n: int, pipe: Connection) -> None:
    """Push a batch inside a transaction, report it, and hold the transaction until killed."""
    queue = place.open().queue("work")
    with place.sa_engine().begin() as connection:
        pipe.send(queue.push_many(map(str, range(n)), connection=connection))
        pipe.recv()


def pop_and_never_commit(place: Place, n: int, pipe: Connection) -> None:
    """Pop and complete a batch inside a transaction, report it, and hold the transaction until killed."""
    queue = place.open().queue("work")
    with place.sa_engine().begin() as connection:
        batch = queue.pop_many(n, connection=connection)
        queue.complete_many(batch, connection=connection)
        pipe.send([claim.id for claim in batch])
        pipe.recv()


def create(place: Place, barrier: Any, pipe: Connection) -> None:
    """Create the same queue as all the others, at the same moment, and push to it."""
    database = place.open()
    barrier.wait()
    pipe.send(database.create_queue("work", payload="text").push("x"))
    place.close()
