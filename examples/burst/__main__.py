"""A burst: 20,000 messages reach an idle worker at once, and the number of its consumers rises and falls.

    python -m examples.burst [--url sqlite:///burst.db] [--messages 20000] [--consumers 16] [--plot burst.svg]

First there is a message now and then, then the burst, then nothing. The handler takes 5 milliseconds, like a call to
another service. The numbers of ready messages and of consumers are sampled ten times a second. In the end every message
is in the history once.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread
from time import perf_counter, sleep
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

import tablequeue
from tablequeue import Claim, Queue
from tablequeue.worker import Worker

BEFORE, EVERY = 20, 0.1
TAKES = 0.005
SAMPLE_EVERY = 0.1


class Sample(NamedTuple):
    at: float
    ready: int
    consumers: int


def handle(message: Claim) -> None:
    sleep(TAKES)


def watch(queue: Queue, worker: Worker, started: float, end: Event, samples: list[Sample]) -> None:
    while not end.wait(SAMPLE_EVERY):
        samples.append(Sample(perf_counter() - started, queue.stats().ready, worker.consumers[queue.name]))


def run(url: str, messages: int, consumers: int) -> list[Sample]:
    """Run a worker through the burst, and return the samples."""
    worker = Worker(maximum=consumers)
    worker.handler("burst")(handle)
    samples: list[Sample] = []
    with tablequeue.connect(url) as database:
        queue = database.create_queue("burst")
        end = Event()
        threads = [
            Thread(target=worker.run, args=(database,)),
            Thread(target=watch, args=(queue, worker, perf_counter(), end, samples)),
        ]
        for thread in threads:
            thread.start()
        for number in range(BEFORE):
            sleep(EVERY)
            queue.push(number)
        queue.push_many(range(messages))
        while queue.stats().finished != BEFORE + messages or worker.consumers["burst"]:
            sleep(SAMPLE_EVERY)
        sleep(10 * SAMPLE_EVERY)
        end.set()
        worker.stop()
        for thread in threads:
            thread.join()
        handled = [message.payload for message in queue.history(2 * (BEFORE + messages))]
        assert sorted(handled) == sorted([*range(BEFORE), *range(messages)]), "each message once"
        queue.drop()
    return samples


def plot(samples: Sequence[Sample], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    upper, lower = figure.subplots(2, sharex=True)
    times = [sample.at for sample in samples]
    upper.fill_between(times, [sample.ready for sample in samples], step="post", color="#3b82c4", alpha=0.4)
    upper.set_ylabel("ready messages")
    lower.step(times, [sample.consumers for sample in samples], where="post", color="#e08a1e")
    lower.set_ylabel("consumers")
    lower.set_xlabel("seconds")
    for axes in (upper, lower):
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--consumers", type=int, default=16)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tablequeue-burst-"))
        url = arguments.url or f"sqlite:///{Path(folder, 'burst.db')}"
        samples = run(url, arguments.messages, arguments.consumers)
    table = Table("seconds", "ready", "consumers", title=f"{arguments.messages:,} messages at once")
    before = None
    for sample in samples:
        if sample.consumers != before:
            table.add_row(f"{sample.at:.1f}", f"{sample.ready:,}", f"{sample.consumers} {'█' * sample.consumers}")
            before = sample.consumers
    Console().print(table)
    if arguments.plot:
        plot(samples, arguments.plot)


if __name__ == "__main__":
    main()
