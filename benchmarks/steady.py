"""A steady load on the queue `steady`: one process pushes at a rate, another one consumes; each message is timed."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from threading import Event, Thread
from time import sleep, time

import tablequeue
from tablequeue import Claim, Queue
from tablequeue.engines import walks
from tablequeue.ext import waiter_of

QUEUE = "steady"
PRODUCERS = 4
BATCH = 100

_processes = multiprocessing.get_context("spawn")
Timed = list[tuple[float, float]]
"""When a message was popped, and the seconds since its push."""


def note(timed: Timed, messages: Sequence[Claim]) -> None:
    now = time()
    timed.extend((now, now - float(message.payload)) for message in messages)


def one_by_one(queue: Queue, timed: Timed, done: Event) -> None:
    """Pop, and complete, one message at a time."""
    with waiter_of(queue) as waiter:
        while not done.is_set():
            message = queue.pop()
            if message is None:
                waiter.wait(0.5)
                continue
            waiter.found()
            note(timed, [message])
            message.complete()


def in_batches(queue: Queue, timed: Timed, done: Event) -> None:
    """Pop what is there, up to 100 messages, and complete it with the next pop. Most pops find less."""
    batch: list[Claim] = []
    with waiter_of(queue) as waiter:
        while not done.is_set():
            batch = queue.pop_many(BATCH, completing=batch) if batch else queue.pop_many(BATCH)
            if batch:
                waiter.found()
                note(timed, batch)
            else:
                waiter.wait(0.5)
    if batch:
        queue.complete_many(batch)


CONSUMERS: dict[str, tuple[Callable[[Queue, Timed, Event], None], int]] = {
    "one by one": (one_by_one, 4),
    f"by {BATCH}": (in_batches, 2),
}
"""What each thread of the consuming process does, and the number of threads."""


def produce(url: str, rate: float, pipe: Connection) -> None:
    with tablequeue.connect(url) as database:
        queue, done, start = database.queue(QUEUE), Event(), time()

        def push(first: int) -> None:
            place = first
            while not done.wait(max(0.0, start + place / rate - time())):
                queue.push(repr(time()))
                place += PRODUCERS

        _in_threads([partial(push, first) for first in range(PRODUCERS)], done, pipe)
        pipe.send([])


def consume(url: str, shape: str, marks: bool, pipe: Connection) -> None:
    walks.PAUSES = walks.PAUSES if marks else 0
    with tablequeue.connect(url) as database:
        queue, done, timed = database.queue(QUEUE), Event(), Timed()
        work, threads = CONSUMERS[shape]
        _in_threads([partial(work, queue, timed, done)] * threads, done, pipe)
        pipe.send(timed)


@contextmanager
def steady(url: str, rate: float, shape: str, marks: bool = True) -> Iterator[Timed]:
    """Push and consume at `rate` messages a second. The list is filled when the block has ended.

    marks   whether the consumers keep marks, as they do; without them, each statement walks all dead entries.
    """
    timed = Timed()
    with tablequeue.connect(url) as database:
        database.create_queue(QUEUE, payload="text")
        pipes = [_processes.Pipe() for _ in range(2)]
        both = [
            _processes.Process(target=consume, args=(url, shape, marks, pipes[0][1])),
            _processes.Process(target=produce, args=(url, rate, pipes[1][1])),
        ]
        for process, (ours, _) in zip(both, pipes, strict=True):
            process.start()
            ours.recv()
        yield timed
        for process, (ours, _) in reversed([*zip(both, pipes, strict=True)]):
            ours.send("stop")
            timed += ours.recv()
            process.join()
        database.queue(QUEUE).drop()


def percentile(timed: Timed, window: tuple[float, float], share: float) -> float:
    """Return a percentile of the messages popped in a window, in milliseconds."""
    values = sorted(seconds for at, seconds in timed if window[0] <= at < window[1])
    return values[min(int(len(values) * share), len(values) - 1)] * 1000


def window(seconds: float) -> tuple[float, float]:
    """Wait, and return when it began and ended."""
    began = time()
    sleep(seconds)
    return began, time()


def _in_threads(works: Sequence[Callable[[], None]], done: Event, pipe: Connection) -> None:
    """Run the works until told to stop."""
    threads = [Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    pipe.send("ready")
    pipe.recv()
    done.set()
    for thread in threads:
        thread.join()
