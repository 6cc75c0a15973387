"""Push one message after the other, then pop and complete them, in one process and one thread. Each commit is flushed.

    python -m benchmarks.one_by_one [--engines sqlite,postgresql] [--repeats 5] [--full]

Compares tablequeue with the same statements on the bare driver (on PostgreSQL also by pgbench), and with other queues.
A queue that can only be consumed by a worker uses one that takes one message at a time; its module says how.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from benchmarks.contenders import Contender, closing, payloads
from benchmarks.contenders.bare import BARE, bare
from benchmarks.contenders.litequeue_ import LitequeueUnflushed
from benchmarks.contenders.ours import Apart, Tablequeue
from benchmarks.contenders.peers import PEERS
from benchmarks.contenders.pgbench import Pgbench
from benchmarks.contest import Step, contest
from benchmarks.options import chosen, parser
from benchmarks.places import PLACES
from benchmarks.results import OURS, Figure, save

MESSAGES, FULL = 300, 1_000
# Most of the time goes into disk flushes, which take twice as long in one round as in another: the median of a ratio
# over five rounds was 0.67 in one run and 0.93 in the next.
FULL_REPEATS = 15
CONTENDERS: Mapping[str, Sequence[Callable[[str], Contender]]] = {
    "sqlite": (Tablequeue, Apart, bare, *PEERS["sqlite"]),
    "postgresql": (Tablequeue, Apart, bare, Pgbench, *PEERS["postgresql"]),
}
# The aim against the bare driver; against every other queue it is 1. Contenders without an aim are for comparison.
OF_BARE = {"sqlite": 0.8, "postgresql": 0.9}
STEPS: Mapping[str, Step] = {
    "push": lambda contender, messages: contender.push(messages),
    "pop + complete": lambda contender, messages: contender.drain_singly(len(messages)),
}
CONDITIONS = (
    "Payloads of 100 bytes, one process, one thread. Every commit is flushed unless the line says otherwise. "
    "tablequeue completes a message with the pop of the next one, in one transaction. In the line below it, tablequeue "
    "makes two calls, as all others do."
)


def aim(engine: str, what: str, contender: str) -> float | None:
    if contender.startswith(OURS) or contender in (Pgbench.name, LitequeueUnflushed.name):
        return None
    return OF_BARE[engine] if contender == BARE else 1


def main() -> None:
    arguments = chosen(parser(__doc__, list(CONTENDERS)), FULL_REPEATS)
    messages = payloads(FULL if arguments.full else MESSAGES)
    figures: list[Figure] = []
    for engine in arguments.engines:
        # About one commit in a hundred pays for a checkpoint of SQLite. A contender with fewer commits might pay for
        # none.
        alike = engine == "sqlite"
        with PLACES[engine]() as url, closing([make(url) for make in CONTENDERS[engine]]) as contenders:
            figures += contest(engine, contenders, STEPS, messages, arguments.repeats, aim, alike)
    save("one_by_one", "One by one", CONDITIONS, figures, keep=arguments.full)


if __name__ == "__main__":
    main()
