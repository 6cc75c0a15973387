"""A burst: 20,000 messages reach an idle worker at once, and the number of its consumers rises and falls.

    python -m examples.burst [--url sqlite:///burst.db] [--messages 20000] [--consumers 16] [--plot burst.svg]

First a message now and then, for which one consumer is enough, or none; then the burst; then nothing. A handler takes 5
milliseconds, as one that asks another service does. How many messages are ready and how many consumers there are is
looked at ten times a second. In the end every message is in the history, once.
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
LOOK = 0.1


class Look(NamedTuple):
    at: float
    ready: int
    consumers: int


def handle(message: Claim) -> None:
    sleep(TAKES)


def watch(queue: Queue, worker: Worker, started: float, end: Event, looks: list[Look]) -> None:
    while not end.wait(LOOK):
        looks.append(Look(perf_counter() - started, queue.stats().ready, worker.consumers[queue.name]))


def run(url: str, messages: int, consumers: int) -> list[Look]:
    """Have the worker meet the burst; what was seen of it."""
    worker = Worker(maximum=consumers)
    worker.handler("burst")(handle)
    looks: list[Look] = []
    with tablequeue.connect(url) as database:
        queue = database.create_queue("burst")
        end = Event()
        threads = [
            Thread(target=worker.run, args=(database,)),
            Thread(target=watch, args=(queue, worker, perf_counter(), end, looks)),
        ]
        for thread in threads:
            thread.start()
        for number in range(BEFORE):
            sleep(EVERY)
            queue.push(number)
        queue.push_many(range(messages))
        while queue.stats().finished != BEFORE + messages or worker.consumers["burst"]:
            sleep(LOOK)
        sleep(10 * LOOK)
        end.set()
        worker.stop()
        for thread in threads:
            thread.join()
        handled = [message.payload for message in queue.history(2 * (BEFORE + messages))]
        assert sorted(handled) == sorted([*range(BEFORE), *range(messages)]), "each message once"
        queue.drop()
    return looks


def plot(looks: Sequence[Look], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    upper, lower = figure.subplots(2, sharex=True)
    times = [look.at for look in looks]
    upper.fill_between(times, [look.ready for look in looks], step="post", color="#3b82c4", alpha=0.4)
    upper.set_ylabel("ready messages")
    lower.step(times, [look.consumers for look in looks], where="post", color="#e08a1e")
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
        looks = run(url, arguments.messages, arguments.consumers)
    table = Table("seconds", "ready", "consumers", title=f"{arguments.messages:,} messages at once")
    before = None
    for look in looks:
        if look.consumers != before:
            table.add_row(f"{look.at:.1f}", f"{look.ready:,}", f"{look.consumers} {'█' * look.consumers}")
            before = look.consumers
    Console().print(table)
    if arguments.plot:
        plot(looks, arguments.plot)


if __name__ == "__main__":
    main()
