"""Compare the cost of a claim with 100,000 messages waiting (in a full run also 1,000,000) to its cost with 1,000.

    python -m benchmarks.backlog [--engines ...] [--designs ...] [--repeats 5] [--full]

There is a queue for each size, and they are measured in turn, round after round. After each round the messages are
replaced, which is not timed. Messages are popped and completed one by one. The figure is the rate of a backlog divided
by that of the smallest: 1 is flat. A grouped queue has 10,000 groups. Every commit is flushed. By default only the
order `fifo` is measured, in a full run on PostgreSQL also with 10,000,000 messages. On SQLite it is compared with
litequeue, up to 100,000 messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import tablequeue
from benchmarks.contenders import closing
from benchmarks.contenders.litequeue_ import Litequeue
from benchmarks.options import chosen, parser
from benchmarks.places import LABELS, PLACES
from benchmarks.results import OURS, Figure, save
from benchmarks.rounds import interleaved, rate
from tablequeue import NewMessage, Queue

SIZES = (1_000, 100_000)
FULL_SIZES = (*SIZES, 1_000_000, 10_000_000)
# Aims for the ratio to the rate with the smallest backlog.
AIMS = {1_000_000: 0.9, 10_000_000: 0.8}
GROUPS = 10_000
CYCLES = 200
CHUNK = 10_000
# litequeue's pop sorts all waiting messages: with 1,000,000 a round would take minutes, and 200 cycles are too many.
PEERS_CYCLES = 20
CONDITIONS = f"Messages are popped and completed one by one, {CYCLES} in a round. Every commit is flushed."

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
    """Yield payloads of 100 bytes, spread over the groups, or over 10 priorities."""
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
        # Plain payloads are pushed faster than `NewMessage`.
        queue.push_many(["x" * 100] * number if plain else messages(queue, start, number))


def cycles(queue: Queue) -> None:
    for _ in range(CYCLES):
        message = queue.pop()
        assert message is not None, "there is a backlog"
        message.complete()


def measured(queue: Queue) -> float:
    """Return the cycles a second. Afterwards the backlog has its old length again."""
    cycles_a_second = rate(partial(cycles, queue), CYCLES)
    fill(queue, CYCLES)
    return cycles_a_second


def compare(
    database: tablequeue.Database, engine: str, design: str, sizes: Sequence[int], repeats: int
) -> Iterator[Figure]:
    """Yield the rate of each backlog divided by that of the smallest."""
    queues = {size: database.create_queue(f"{design}_{size}", payload="text", **DESIGNS[design]) for size in sizes}
    for size, queue in queues.items():
        fill(queue, size)
    works = {size: partial(measured, queue) for size, queue in queues.items()}
    yield from over_the_smallest(OURS, engine, design, works, repeats)
    for queue in queues.values():
        queue.drop()


def compare_litequeue(engine: str, url: str, sizes: Sequence[int], repeats: int) -> Iterator[Figure]:
    with closing([Litequeue(url, f"{size}.db") for size in sizes]) as contenders:
        works = {}
        for size, contender in zip(sizes, contenders, strict=True):
            contender.push_bulk(["x" * 100] * (size + PEERS_CYCLES * (repeats + 1)))
            works[size] = partial(rate, partial(contender.drain_singly, PEERS_CYCLES), PEERS_CYCLES)
        yield from over_the_smallest(Litequeue.name, engine, "fifo", works, repeats)


def over_the_smallest(
    who: str, engine: str, design: str, works: Mapping[int, Callable[[], float]], repeats: int
) -> Iterator[Figure]:
    found = interleaved({f"{size:,}": work for size, work in works.items()}, repeats, f"{engine}, {design}, {who}")
    least, *sizes = works
    smallest, *others = found.values()
    for size, rates in zip(sizes, others, strict=True):
        ratios = [one / other for one, other in zip(rates, smallest, strict=True)]
        aim = AIMS.get(size) if who == OURS else None
        yield Figure(engine, f"{design}, {size:,} / {least:,} waiting", who, "ratio", ratios, aim)


def main() -> None:
    options = parser(__doc__, list(PLACES))
    options.add_argument("--designs", type=lambda text: text.split(","), default=["fifo"], help=",".join(DESIGNS))
    arguments = chosen(options)
    figures: list[Figure] = []
    for engine in arguments.engines:
        with PLACES[engine]() as url, tablequeue.connect(url) as database:
            for design in arguments.designs:
                most = FULL_SIZES if (engine, design) == ("postgresql", "fifo") else FULL_SIZES[:-1]
                sizes = most if arguments.full else SIZES
                figures += compare(database, LABELS[engine], design, sizes, arguments.repeats)
            if engine == "sqlite":
                figures += compare_litequeue(LABELS[engine], url, SIZES, arguments.repeats)
    save("backlog", "Backlogs", CONDITIONS, figures, keep=arguments.full)


if __name__ == "__main__":
    main()
