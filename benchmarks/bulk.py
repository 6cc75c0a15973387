"""Push messages in bulk and drain them with one process. Every commit is flushed.

    python -m benchmarks.bulk [--engines sqlite,postgresql] [--repeats 5] [--full]

Compares tablequeue with everything on, in batches of several sizes, with the same statements on the bare driver (which
writes the history row by row), and with other queues in their best configurations. Slow ones get fewer messages in a
round, because a shorter queue slows none of them down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from benchmarks.contenders import Contender, closing, payloads
from benchmarks.contenders.bare import BARE_COPY, BareCopy, bare
from benchmarks.contenders.litequeue_ import LitequeueUnflushed
from benchmarks.contenders.ours import Tablequeue
from benchmarks.contenders.peers import PEERS
from benchmarks.contest import Step, contest
from benchmarks.options import chosen, parser
from benchmarks.places import PLACES
from benchmarks.results import OURS, Figure, save

MESSAGES, FULL = 5_000, 20_000
SIDES: Sequence[Callable[[str], Contender]] = (
    Tablequeue,
    *(partial(Tablequeue, batch=batch) for batch in (100, 5_000)),
    *(partial(bare, batch=batch) for batch in (100, 1_000)),
)
CONTENDERS: Mapping[str, Sequence[Callable[[str], Contender]]] = {
    "sqlite": (*SIDES, *PEERS["sqlite"]),
    "postgresql": (*SIDES, partial(BareCopy, batch=FULL), *PEERS["postgresql"]),
}
STEPS: Mapping[str, Step] = {
    "push": lambda contender, messages: contender.push_bulk(messages),
    "drain": lambda contender, messages: contender.drain(len(messages)),
}
# Aims against the other queues. A push is limited by COPY, and some of them reach more than a fifth of that.
PEER = {"push": 1, "drain": 5}
AIMS = {
    ("postgresql", "push", BARE_COPY): 0.8,
    ("postgresql", "drain", "bare driver by 100"): 1.5,
    ("sqlite", "push", "bare driver by 1,000"): 0.8,
    ("sqlite", "drain", "bare driver by 1,000"): 0.8,
}
CONDITIONS = (
    f"{FULL:,} payloads of 100 bytes, one process. Every commit is flushed unless the line says otherwise. tablequeue "
    "pops 1,000 messages at a time, and completes those before in the same call. The lines below it have other batch "
    "sizes. `bare COPY` pushes and claims everything at once."
)


def aim(engine: str, what: str, contender: str) -> float | None:
    if contender.startswith((OURS, "bare")):
        return AIMS.get((engine, what, contender))
    return None if contender == LitequeueUnflushed.name else PEER[what]


def main() -> None:
    arguments = chosen(parser(__doc__, list(CONTENDERS)))
    messages = payloads(FULL if arguments.full else MESSAGES)
    figures: list[Figure] = []
    for engine in arguments.engines:
        with PLACES[engine]() as url, closing([make(url) for make in CONTENDERS[engine]]) as contenders:
            figures += contest(engine, contenders, STEPS, messages, arguments.repeats, aim, alike=False)
    save("bulk", "In bulk", CONDITIONS, figures, keep=arguments.full)


if __name__ == "__main__":
    main()
