"""Contention: in each of 8 or 64 processes, a loop pushes a message, pops one and completes it, for some seconds.

    python -m benchmarks.contention [--engines sqlite,postgresql] [--repeats 5] [--full]

Compares tablequeue with the same statements on the bare driver, which on SQLite wait by busy_timeout, and with 8
processes also with other queues on SQLite. The pushed and the delivered messages of all processes are compared.
"""

from __future__ import annotations

import multiprocessing as mp
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.synchronize import Barrier
from time import perf_counter
from typing import Any

from benchmarks.contenders import Contender, closing
from benchmarks.contenders.bare import BARE, bare
from benchmarks.contenders.huey_ import Huey
from benchmarks.contenders.litequeue_ import Litequeue
from benchmarks.contenders.ours import Tablequeue
from benchmarks.contenders.persistqueue_ import PersistQueue
from benchmarks.options import chosen, parser
from benchmarks.places import LABELS, PLACES
from benchmarks.results import OURS, Figure, save
from benchmarks.rounds import interleaved

Make = Callable[[str], Contender]

# The aims for fairness: cycles of the slowest process / cycles of the median process.
PROCESSES = {8: 0.5, 64: 0.25}
SIDES: Mapping[str, Make] = {OURS: Tablequeue, BARE: bare}
# Only with 8 processes: of 64, some wait until they give up.
PEERS: Mapping[str, Mapping[str, Make]] = {
    "sqlite": {Litequeue.name: Litequeue, Huey.name: Huey, PersistQueue.name: PersistQueue},
    "postgresql": {},
}
# The time for which the processes work.
SECONDS, FULL = 1, 4
# Seconds after which a process that does not answer has failed.
PATIENCE = 120
# Contenders that may deliver a message twice. This is counted; in all others it is an error.
DOUBLES = (PersistQueue.name,)
CONDITIONS = (
    "Payloads of 100 bytes. Every commit is flushed. A cycle is a push, a pop and a completion, each in a "
    "transaction of its own. On SQLite, busy_timeout is 60 s for all; the bare driver has no other way to wait."
)


@dataclass(frozen=True)
class Crowd:
    """The results of all processes in one round."""

    cycles: Sequence[int]
    """Of each process."""
    delivered: int
    """The number of messages. On a server a pop may find none, because it skips those that others are claiming."""
    seconds: float
    longest: float
    """Seconds of the longest single cycle of all."""
    doubles: int
    """The number of messages that were delivered more than once."""

    @property
    def rate(self) -> float:
        return self.delivered / self.seconds

    @property
    def fairness(self) -> float:
        return min(self.cycles) / statistics.median(self.cycles)


def member(make: Make, url: str, number: int, seconds: float, start: Barrier, results: Any) -> None:
    """Run one process. It reports the payloads that it pushed and got, and its longest cycle."""
    with closing([make(url)]) as (contender,):
        pushed: list[str] = []
        delivered: list[str] = []
        longest = 0.0
        start.wait()
        end = perf_counter() + seconds
        while (began := perf_counter()) < end:
            payload = f"{number}-{len(pushed)}-".ljust(100, "x")
            contender.push([payload])
            pushed.append(payload)
            delivered += contender.drain_singly(1)
            longest = max(longest, perf_counter() - began)
        results.put((pushed, delivered, longest))


def crowd(make: Make, url: str, processes: int, seconds: float) -> Crowd:
    context = mp.get_context("fork")
    start, results = context.Barrier(processes), context.Queue()
    arguments = ((make, url, number, seconds, start, results) for number in range(processes))
    members = [context.Process(target=member, args=each) for each in arguments]
    for each in members:
        each.start()
    found = [results.get(timeout=PATIENCE) for _ in members]
    for each in members:
        each.join()
    pushed = Counter(payload for mine, _, _ in found for payload in mine)
    delivered = Counter(payload for _, mine, _ in found for payload in mine)
    total = delivered.total()
    with closing([make(url)]) as (contender,):
        delivered.update(contender.drain_singly(len(pushed) - len(delivered)))
    assert pushed <= delivered, "none is lost"
    cycles, longest = [len(mine) for mine, _, _ in found], max(longest for _, _, longest in found)
    return Crowd(cycles, total, seconds, longest, (delivered - pushed).total())


def figures(engine: str, processes: int, found: Mapping[str, Sequence[Crowd]]) -> Iterator[Figure]:
    label, what = LABELS[engine], f"{processes} processes"
    for name, crowds in found.items():
        aim = {OURS: None, BARE: 0.9}.get(name, 1)
        yield Figure(label, what, name, "cycles/s", [each.rate for each in crowds], aim)
    fairness = [each.fairness for each in found[OURS]]
    yield Figure(label, f"{what}, slowest / median process", OURS, "", fairness, PROCESSES[processes])
    for name, crowds in found.items():
        yield Figure(label, f"{what}, slowest process", name, "cycles", [min(each.cycles) for each in crowds])
    for name, crowds in found.items():
        yield Figure(label, f"{what}, longest cycle", name, "ms", [1000 * each.longest for each in crowds])
    for name, crowds in found.items():
        doubles = [each.doubles for each in crowds]
        assert name in DOUBLES or not any(doubles), f"{name} delivered {sum(doubles)} messages more than once"
        if name in DOUBLES:
            yield Figure(label, f"{what}, delivered more than once", name, "messages", doubles)


def main() -> None:
    arguments = chosen(parser(__doc__, list(PEERS)))
    seconds = FULL if arguments.full else SECONDS
    all_figures: list[Figure] = []
    for engine in arguments.engines:
        with PLACES[engine]() as place:
            url = f"{place}?timeout=60" if engine == "sqlite" else place
            for processes in PROCESSES:
                sides = {**SIDES, **(PEERS[engine] if processes == min(PROCESSES) else {})}
                with closing([make(url) for make in sides.values()]):
                    works = {name: partial(crowd, make, url, processes, seconds) for name, make in sides.items()}
                found = interleaved(works, arguments.repeats, f"{LABELS[engine]}, {processes} processes")
                all_figures += figures(engine, processes, found)
    save("contention", "Contention", CONDITIONS, all_figures, keep=arguments.full)


if __name__ == "__main__":
    main()
