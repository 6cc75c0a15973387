"""Payloads of 1 kB, 64 kB and 1 MB, one by one and in bulk, compared with the bare driver. Every commit is flushed.

    python -m benchmarks.sizes [--engines sqlite,postgresql] [--repeats 5] [--full]

The payloads are random, so that no engine can compress them. In bulk, they are pushed in one call and drained in
batches of up to 1,000.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.contenders import closing
from benchmarks.contenders.bare import BARE, bare
from benchmarks.contenders.ours import BATCH, Tablequeue
from benchmarks.contest import Step, contest
from benchmarks.options import chosen, parser
from benchmarks.places import PLACES
from benchmarks.results import Figure, save


@dataclass(frozen=True)
class Size:
    name: str
    bytes: int
    singly: int
    """The number of messages that are pushed one by one in a round."""
    bulk: int
    """The number of messages that are pushed in bulk."""

    def payloads(self, number: int) -> list[str]:
        chance = random.Random(1)
        return [base64.b64encode(chance.randbytes(self.bytes * 3 // 4)).decode() for _ in range(number)]


SIZES = (Size("1 kB", 1 << 10, 300, 5_000), Size("64 kB", 1 << 16, 100, 400), Size("1 MB", 1 << 20, 10, 20))
SINGLY: Mapping[str, Step] = {
    "push": lambda contender, messages: contender.push(messages),
    "pop + complete": lambda contender, messages: contender.drain_singly(len(messages)),
}
# A short run has this part of the messages.
SHARE = 5
BULK: Mapping[str, Step] = {
    "push in bulk": lambda contender, messages: contender.push_bulk(messages),
    "drain": lambda contender, messages: contender.drain(len(messages)),
}
CONDITIONS = f"Random payloads, one process, batches of {BATCH:,} in bulk. Every commit is flushed."


def main() -> None:
    arguments = chosen(parser(__doc__, ["sqlite", "postgresql"]))
    figures: list[Figure] = []
    for engine in arguments.engines:
        with PLACES[engine]() as url, closing([Tablequeue(url), bare(url, batch=BATCH)]) as contenders:
            contenders[1].name = BARE
            for size in SIZES:
                for steps, number in ((SINGLY, size.singly), (BULK, size.bulk)):
                    payloads = size.payloads(number if arguments.full else number // SHARE)
                    named = {f"{size.name}: {what}": step for what, step in steps.items()}
                    figures += contest(engine, contenders, named, payloads, arguments.repeats)
    save("sizes", "Sizes", CONDITIONS, figures, keep=arguments.full)


if __name__ == "__main__":
    main()
