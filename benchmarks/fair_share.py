"""Measure the share of small tenants in a fair queue.

    python -m benchmarks.fair_share [--engines sqlite,postgresql] [--repeats 3] [--full]

Fair share: 10 tenants have 100 messages each, and with them a large one has 1,000,000 (100,000 unless full), pushed
before. One consumer pops and completes by tens until the small tenants have no message left. The figure is the 95th
percentile of the waits of the small ones' messages, divided by what it is without the large tenant. In turn, it is 1.1
at best: the large tenant has every eleventh message.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter

import tablequeue
from benchmarks.options import chosen, parser
from benchmarks.places import LABELS, PLACES
from benchmarks.results import OURS, Figure, save
from benchmarks.rounds import interleaved

TENANTS, EACH, LARGE, FULL = 10, 100, 100_000, 1_000_000
BATCH = 10
FULL_REPEATS = 3
SHARE = "p95 wait of small tenants beside a large one / alone"
CONDITIONS = f"{TENANTS} tenants with {EACH} messages each. Every commit is flushed."


def wait_of_small(url: str, large: int) -> float:
    """Return the seconds in which 95 % of the messages of the small tenants were popped."""
    with tablequeue.connect(url) as database:
        queue = database.create_queue("work", payload="text", groups="fair")
        if large:
            queue.push_many(["x" * 100] * large, group="large")
        for tenant in range(TENANTS):
            queue.push_many(["x" * 100] * EACH, group=f"small {tenant}")
        waits: list[float] = []
        begin = perf_counter()
        claims = queue.pop_many(BATCH)
        while len(waits) < TENANTS * EACH:
            now = perf_counter() - begin
            waits += [now for claim in claims if claim.group != "large"]
            claims = queue.pop_many(BATCH, completing=claims)
        queue.drop()
    return sorted(waits)[int(len(waits) * 0.95)]


def share(url: str, large: int) -> float:
    return wait_of_small(url, large) / wait_of_small(url, 0)


def main() -> None:
    arguments = chosen(parser(__doc__, ["sqlite", "postgresql"]), FULL_REPEATS)
    figures: list[Figure] = []
    for engine in arguments.engines:
        with PLACES[engine]() as url:
            works = {SHARE: partial(share, url, FULL if arguments.full else LARGE)}
            for what, ratios in interleaved(works, arguments.repeats, LABELS[engine]).items():
                figures.append(Figure(LABELS[engine], what, OURS, "ratio", ratios))
    save("fair_share", "Fair share", CONDITIONS, figures, keep=arguments.full)


if __name__ == "__main__":
    main()
