"""One message after the other: push, then pop and complete, in one process and one thread, each commit flushed.

    python -m benchmarks.one_by_one [--engines sqlite,postgresql] [--repeats 5] [--full]

tablequeue beside the same statements by the bare driver (and, on PostgreSQL, by pgbench) and the other queues. Those
that have workers only work through them one message at a time; what they need for that is said in their modules.
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
# Most of a message is a flush of the disk, which takes twice as long in one round as in another: of five rounds the
# median of a ratio was 0.67 in one run and 0.93 in the next.
FULL_REPEATS = 15
CONTENDERS: Mapping[str, Sequence[Callable[[str], Contender]]] = {
    "sqlite": (Tablequeue, Apart, bare, *PEERS["sqlite"]),
    "postgresql": (Tablequeue, Apart, bare, Pgbench, *PEERS["postgresql"]),
}
# Of the bare driver's rate; of every other queue's it is 1. Those without one are there to be looked at.
OF_BARE = {"sqlite": 0.8, "postgresql": 0.9}
STEPS: Mapping[str, Step] = {
    "push": lambda contender, messages: contender.push(messages),
    "pop + complete": lambda contender, messages: contender.drain_singly(len(messages)),
}
CONDITIONS = (
    "Payloads of 100 bytes, one process, one thread, every commit flushed unless the line says otherwise. tablequeue "
    "completes a message by the pop of the next one, in one transaction; the line below it makes two calls, as all the "
    "others do."
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
        # One commit of SQLite in some hundred pays for a checkpoint: who makes fewer might make none.
        alike = engine == "sqlite"
        with PLACES[engine]() as url, closing([make(url) for make in CONTENDERS[engine]]) as contenders:
            figures += contest(engine, contenders, STEPS, messages, arguments.repeats, aim, alike)
    save("one_by_one", "One by one", CONDITIONS, figures, keep=arguments.full)


if __name__ == "__main__":
    main()
