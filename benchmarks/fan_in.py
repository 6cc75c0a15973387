"""Fan-in: many processes drain a queue one by one, with and without a batch, whose callback follows the last message.

    python -m benchmarks.fan_in [--engines sqlite,postgresql] [--repeats 5] [--full]

64 processes on PostgreSQL, and 8 on SQLite, whose writers follow one another. In each round with a batch, exactly one
callback must have been pushed.
"""

from __future__ import annotations

import multiprocessing as mp
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from multiprocessing.synchronize import Barrier
from time import perf_counter, sleep
from typing import Any

import tablequeue
from benchmarks.options import chosen, parser
from benchmarks.places import LABELS, PLACES
from benchmarks.results import OURS, Figure, save
from benchmarks.rounds import interleaved

PROCESSES = {"sqlite": 8, "postgresql": 64}
MESSAGES, FULL = 2_000, 10_000
PLAIN, UNUSED = "without batches", "messages in no batch"
# Each round has a new queue, so that no side has more dead rows than another one.
NAME, CALLBACKS = "fan_in", "callbacks"
SIDES = (PLAIN, UNUSED, OURS)
# Of the rate without batches.
AIM = 0.85
# Seconds after which a process that does not answer, or a callback that does not come, has failed.
PATIENCE = 120
CONDITIONS = (
    "10,000 payloads of 100 bytes, which 64 processes on PostgreSQL and 8 on SQLite pop and complete one by one, each "
    "completion with the pop of the next message. Every commit is flushed. The time ends when the queue is empty, and "
    "with a batch when its callback is there."
)


def member(url: str, start: Barrier, results: Any) -> None:
    """Run one process: drain the queue, and report when it was found empty."""
    with tablequeue.connect(url) as database:
        queue = database.queue(NAME)
        start.wait()
        began, message = perf_counter(), queue.pop()
        while message is not None:
            message = queue.pop(completing=message)
        results.put((began, perf_counter()))


def drained(url: str, side: str, processes: int, messages: int) -> float:
    """Return the messages a second of one round."""
    payloads = ["x" * 100] * messages
    with tablequeue.connect(url) as database:
        queue, callbacks = database.create_queue(NAME, batches=side != PLAIN), database.queue(CALLBACKS)
        if side == OURS:
            with queue.batch(then=(CALLBACKS, "all")) as batch:
                batch.push_many(payloads)
        else:
            queue.push_many(payloads)
        context = mp.get_context("fork")
        start, results = context.Barrier(processes), context.Queue()
        members = [context.Process(target=member, args=(url, start, results)) for _ in range(processes)]
        for each in members:
            each.start()
        times = [results.get(timeout=PATIENCE) for _ in members]
        ended = max(end for _, end in times)
        for each in members:
            each.join()
        if side == OURS:
            ended = max(ended, arrival(callbacks, queue))
        queue.drop()
        return messages / (ended - min(began for began, _ in times))


def arrival(callbacks: tablequeue.Queue, queue: tablequeue.Queue) -> float:
    """Return when the only callback was there. Without any consumer left, a pop's sweep pushes one that is missing."""
    late = perf_counter() + PATIENCE
    missing = not callbacks.stats().ready
    while not callbacks.stats().ready:
        assert perf_counter() < late, "the callback has not come"
        assert queue.pop() is None
        sleep(0.05)
    came = perf_counter() if missing else 0.0
    message = callbacks.pop()
    assert message is not None
    assert callbacks.pop() is None, "one callback"
    message.complete()
    return came


def figures(engine: str, processes: int, found: Mapping[str, Sequence[float]]) -> Iterator[Figure]:
    for name, rates in found.items():
        yield Figure(
            LABELS[engine], f"{processes} processes", name, "messages/s", rates, 0.85 if name == PLAIN else None
        )


def main() -> None:
    arguments = chosen(parser(__doc__, list(PROCESSES)))
    messages = FULL if arguments.full else MESSAGES
    all_figures: list[Figure] = []
    for engine in arguments.engines:
        processes = PROCESSES[engine]
        with PLACES[engine]() as place:
            url = f"{place}?timeout=60" if engine == "sqlite" else place
            with tablequeue.connect(url) as database:
                database.create_queue(CALLBACKS)
            works = {side: partial(drained, url, side, processes, messages) for side in SIDES}
            all_figures += figures(engine, processes, interleaved(works, arguments.repeats, LABELS[engine]))
    save("fan_in", "Fan-in of batches", CONDITIONS, all_figures, keep=arguments.full)


if __name__ == "__main__":
    main()
