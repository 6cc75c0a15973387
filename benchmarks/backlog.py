"""What a claim costs with 1,000, 100,000 and 1,000,000 messages waiting, for each order and engine.

    python -m benchmarks.backlog [--engines sqlite,postgresql,mariadb] [--repeats 5] [--largest 1000000]

The queues of all sizes stand side by side and are measured in turn, round after round; after each round the messages
are replaced, outside the clock. The figures are medians of pop + complete one by one; the ratio is the largest
backlog's rate over the smallest's, the median of the rounds' ratios: 1 is flat. Groups: 10,000 of them (as many as
there are messages in the smallest backlog), in turn. Every commit is flushed.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import tablequeue
from benchmarks.places import PLACES, machine
from tablequeue import NewMessage, Queue

SIZES = (1_000, 100_000, 1_000_000)
GROUPS = 10_000
CYCLES = 200
CHUNK = 10_000

DESIGNS: dict[str, dict[str, Any]] = {
    "fifo": {},
    "heap": {"order": "heap"},
    "lifo": {"order": "lifo"},
    "due": {"order": "due"},
    "priority": {"order": "priority"},
    "strict": {"strict": True},
    "groups": {"groups": True},
}


def messages(queue: Queue, start: int, number: int) -> Iterator[NewMessage]:
    """Payloads of 100 bytes, spread over the groups, or over 10 priorities."""
    definition = queue.definition
    for place in range(start, start + number):
        yield NewMessage(
            "x" * 100,
            group=f"group {place % GROUPS}" if definition.groups else None,
            priority=place % 10 if definition.order == "priority" else None,
        )


def fill(queue: Queue, size: int) -> None:
    plain = not queue.definition.groups and queue.definition.order != "priority"
    for start in range(0, size, CHUNK):
        number = min(CHUNK, size - start)
        # Plain payloads go the fast way.
        queue.push_many(["x" * 100] * number if plain else messages(queue, start, number))


def cycles(queue: Queue) -> float:
    """Cycles a second."""
    started = perf_counter()
    for _ in range(CYCLES):
        message = queue.pop()
        assert message is not None, "there is a backlog"
        message.complete()
    return CYCLES / (perf_counter() - started)


def compare(database: tablequeue.Database, design: str, sizes: tuple[int, ...], repeats: int) -> list[float]:
    """The median rate at each size, and the ratio of the largest to the smallest."""
    queues = [database.create_queue(f"{design}_{size}", payload="text", **DESIGNS[design]) for size in sizes]
    for queue, size in zip(queues, sizes, strict=True):
        fill(queue, size)
        cycles(queue)  # the first claims find the caches cold
        fill(queue, CYCLES)
    rounds: list[list[float]] = []
    for number in range(repeats):
        order = range(len(queues)) if number % 2 else reversed(range(len(queues)))
        rates = dict.fromkeys(range(len(queues)), 0.0)
        for place in order:
            rates[place] = cycles(queues[place])
        rounds.append([rates[place] for place in range(len(queues))])
        for queue in queues:
            fill(queue, CYCLES)
    for queue in queues:
        queue.drop()
    medians = [statistics.median(each[place] for each in rounds) for place in range(len(queues))]
    return [*medians, statistics.median(each[-1] / each[0] for each in rounds)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--engines", default=",".join(PLACES))
    parser.add_argument("--designs", default=",".join(DESIGNS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--largest", type=int, default=SIZES[-1])
    arguments = parser.parse_args()
    sizes = tuple(size for size in SIZES if size <= arguments.largest)
    table = Table(
        "engine", "order", title=f"{machine()}; pop + complete a second; medians of {arguments.repeats} rounds"
    )
    for size in sizes:
        table.add_column(f"{size:,} waiting", justify="right")
    table.add_column("largest / smallest", justify="right")
    designs = arguments.designs.split(",")
    with Progress(transient=True) as progress:
        for engine in arguments.engines.split(","):
            with PLACES[engine]() as url, tablequeue.connect(url) as database:
                for design in progress.track(designs, description=engine):
                    *rates, ratio = compare(database, design, sizes, arguments.repeats)
                    table.add_row(engine, design, *(f"{rate:,.0f}" for rate in rates), f"{ratio:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
