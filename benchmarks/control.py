"""Measure what limits cost: the drain of a queue with limits, divided by that of one without.

    python -m benchmarks.control [--engines sqlite,postgresql,mariadb] [--repeats 5] [--full]

Consumers in threads of one process pop and complete, one by one or in batches. The limits allow them all, except where
there are twice as many consumers as places; that is compared with a queue without limits that has as many consumers as
places. Every commit is flushed, and each message must be delivered once.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import sleep
from typing import NamedTuple

import tablequeue
from benchmarks.options import chosen, parser
from benchmarks.places import LABELS, PLACES
from benchmarks.results import OURS, Figure, save
from benchmarks.rounds import interleaved, rate
from tablequeue import Claim, Consumer, NewMessage, QueueOptions, Rate
from tablequeue.ext import waiter_of

MESSAGES, FULL = 1_000, 5_000
CONSUMERS = 8
AIM = 0.8
CONDITIONS = f"{CONSUMERS} consumers in threads of one process. Every commit is flushed."
# More than any of the consumers can claim.
FAST = Rate(1_000_000, burst=1_000_000)


class Way(NamedTuple):
    """How a queue is drained."""

    options: QueueOptions
    batch: int = 1
    consumers: int = CONSUMERS
    work: float = 0
    """Seconds that a consumer works on each batch."""
    beside: str | None = None
    """The way without limits to which it is compared."""
    groups: int = 0


WAYS = {
    "one by one": Way({}),
    "one by one, 20 places": Way({"concurrency": 20}, beside="one by one"),
    "one by one, 1,000 places": Way({"concurrency": 1_000}, beside="one by one"),
    "one by one, a rate": Way({"rate": FAST}, beside="one by one"),
    "8 consumers, 10 ms each": Way({}, work=0.01),
    "8 places, 16 consumers, 10 ms each": Way(
        {"concurrency": CONSUMERS}, 1, 2 * CONSUMERS, 0.01, "8 consumers, 10 ms each"
    ),
    "by 20": Way({}, 20),
    "by 20, 200 places": Way({"concurrency": 200}, 20, beside="by 20"),
    "by 20, a rate": Way({"rate": FAST}, 20, beside="by 20"),
    "20 groups": Way({"groups": "fair"}, groups=20),
    "20 groups, 2 places each": Way({"groups": "fair", "per_group": 2}, beside="20 groups", groups=20),
    "20 groups, a rate each": Way({"groups": "fair", "group_rate": FAST}, beside="20 groups", groups=20),
    "20 groups by 20": Way({"groups": "fair"}, 20, groups=20),
    "20 groups by 20, 20 places each": Way(
        {"groups": "fair", "per_group": 20}, 20, beside="20 groups by 20", groups=20
    ),
}


def drain(url: str, way: Way, messages: int) -> float:
    """Return the messages a second."""
    with tablequeue.connect(url) as database:
        queue = database.create_queue("work", **way.options)
        groups = [f"group {number % way.groups}" if way.groups else None for number in range(messages)]
        queue.push_many([NewMessage("x" * 100, group=group) for group in groups])
        with ThreadPoolExecutor(way.consumers) as threads:
            seen: list[int] = []

            def all_of_them() -> None:
                for some in threads.map(lambda _: consume(queue, way), range(way.consumers)):
                    seen.extend(some)

            figure = rate(all_of_them, messages)
        assert sorted(seen) == sorted({*seen}), "each message once"
        assert len(seen) == messages, "all messages"
        queue.drop()
        return figure


def consume(queue: Consumer, way: Way) -> list[int]:
    """Pop and complete until nothing is ready."""
    done: list[int] = []
    with waiter_of(queue) as waiter:
        while True:
            claims: list[Claim] = queue.pop_many(way.batch)
            if claims:
                sleep(way.work)
                queue.complete_many(claims)
                done += [claim.id for claim in claims]
            elif queue.stats().ready:
                waiter.wait(1)
            else:
                return done


def main() -> None:
    arguments = chosen(parser(__doc__, ["sqlite", "postgresql", "mariadb"]))
    messages = FULL if arguments.full else MESSAGES
    figures: list[Figure] = []
    for engine in arguments.engines:
        with PLACES[engine]() as url:
            works = {name: partial(drain, url, way, messages) for name, way in WAYS.items()}
            rates = interleaved(works, arguments.repeats, LABELS[engine])
        for name, way in WAYS.items():
            figures.append(Figure(LABELS[engine], name, OURS, "messages/s", rates[name]))
            if way.beside is not None:
                ratios = [mine / other for mine, other in zip(rates[name], rates[way.beside], strict=True)]
                figures.append(Figure(LABELS[engine], f"{name} / {way.beside}", OURS, "ratio", ratios, AIM))
    save("control", "Limits", CONDITIONS, figures, keep=arguments.full)


if __name__ == "__main__":
    main()
