"""Measure a worker: on a subscription beside a queue, by kind of handler; and jobs that take a millisecond each.

    python -m benchmarks.workers [--engines sqlite,postgresql] [--repeats 5] [--full]

One process. Every commit is flushed, and each delivery is checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from time import sleep
from typing import Any

import tablequeue
from benchmarks.contenders import check, payloads
from benchmarks.contenders.topic import QUEUE
from benchmarks.options import chosen, parser
from benchmarks.places import LABELS, PLACES
from benchmarks.results import OURS, Figure, save
from benchmarks.rounds import interleaved, rate
from tablequeue import Claim, Database, Topic
from tablequeue.worker import Handler, Worker

MESSAGES, FULL = 20_000, 50_000
# Messages that a batch handler gets at once; seconds that a job takes, and how many consumers run such jobs.
BATCH, JOB, CONSUMERS = 1_000, 0.001, 128
# By kind of handler: how many times as fast as on a queue a worker on a subscription must be.
AIMS: Mapping[str, float] = {"a handler of one message": 1.5, "an async handler": 1.5, f"batches of {BATCH:,}": 3}
JOBS_AIM = 14_000
CONDITIONS = (
    f"Payloads of 100 bytes, {FULL:,} messages a round, one process with up to 8 consumers; a handler only notes what "
    f"it got. A job sleeps for {JOB * 1000:g} ms, and up to {CONSUMERS} consumers run jobs. The time includes the "
    "start and the end of the worker."
)


def handlers(seen: list[str]) -> Mapping[str, tuple[Callable[..., Any], int | None]]:
    """Return a handler of each kind, and the size of its batches."""

    def one(message: Claim) -> None:
        seen.append(message.payload)

    async def one_async(message: Claim) -> None:
        seen.append(message.payload)

    def batch(messages: Sequence[Claim]) -> None:
        seen.extend([message.payload for message in messages])

    return dict(zip(AIMS, ((one, None), (one_async, None), (batch, BATCH)), strict=True))


def drained(database: Database, of_topic: bool, kind: str, messages: Sequence[str], numbers: Iterator[int]) -> float:
    """Return the messages a second of a worker, on a new queue or on the subscription of a new topic."""
    name, seen = f"work_{next(numbers)}", list[str]()
    handle, batch = handlers(seen)[kind]
    made = (database.create_topic if of_topic else database.create_queue)(name, payload="text")
    consumed = made.subscribe("all") if isinstance(made, Topic) else made
    made.push_many(messages)
    worker = Worker()
    worker.add(Handler(consumed.name, handle, batch=batch))
    found = rate(partial(worker.run, database, drain=True), len(messages))
    check(messages, seen)
    made.drop()
    return found


def jobs(database: Database, asynchronous: bool, messages: Sequence[str], numbers: Iterator[int]) -> float:
    """Return the jobs a second of a worker on a new queue."""
    seen: list[str] = []

    def work(message: Claim) -> None:
        sleep(JOB)
        seen.append(message.payload)

    async def work_async(message: Claim) -> None:
        await asyncio.sleep(JOB)
        seen.append(message.payload)

    queue = database.create_queue(f"jobs_{next(numbers)}", payload="text")
    queue.push_many(messages)
    worker = Worker(maximum=CONSUMERS)
    worker.add(Handler(queue.name, work_async if asynchronous else work))
    found = rate(partial(worker.run, database, drain=True), len(messages))
    check(messages, seen)
    queue.drop()
    return found


def main() -> None:
    arguments = chosen(parser(__doc__, ["sqlite", "postgresql"]))
    messages = payloads(FULL if arguments.full else MESSAGES)
    figures: list[Figure] = []
    for engine in arguments.engines:
        label = LABELS[engine]
        with PLACES[engine]() as url, tablequeue.connect(url) as database:
            numbers = count()
            for kind, least in AIMS.items():
                works = {
                    name: partial(drained, database, name == OURS, kind, messages, numbers) for name in (OURS, QUEUE)
                }
                for name, rates in interleaved(works, arguments.repeats, f"{label}, {kind}").items():
                    aim = None if name == OURS else least
                    figures.append(Figure(label, f"a worker, {kind}", name, "messages/s", rates, aim))
            for kind, asynchronous in (("threads", False), ("async", True)):
                works = {OURS: partial(jobs, database, asynchronous, messages, numbers)}
                (rates,) = interleaved(works, arguments.repeats, f"{label}, jobs of 1 ms, {kind}").values()
                aim = JOBS_AIM if engine == "postgresql" and not asynchronous else None
                figures.append(Figure(label, f"a worker, jobs of 1 ms, {kind}", OURS, "jobs/s", rates, aim))
    save("workers", "Workers", CONDITIONS, figures, keep=arguments.full)


if __name__ == "__main__":
    main()
