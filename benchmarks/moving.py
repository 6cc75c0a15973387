"""Measure how fast a queue moves to another database.

    python -m benchmarks.moving [--engines sqlite,postgresql,mariadb] [--repeats 5] [--full]

Each engine is the source of a move to each, and all messages must be there in the end. Every commit is flushed.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

import tablequeue
from benchmarks.options import chosen, parser
from benchmarks.places import LABELS, PLACES
from benchmarks.results import OURS, Figure, save
from benchmarks.rounds import interleaved, rate
from tablequeue import ALL

MESSAGES, FULL = 10_000, 100_000
CONDITIONS = "Messages of 100 bytes, a thousand in a batch. Every commit is flushed."


def move(source_url: str, target_url: str, messages: int) -> float:
    """Return the messages a second."""
    with tablequeue.connect(source_url) as first, tablequeue.connect(target_url) as second:
        source, target = first.create_queue("source"), second.create_queue("target")
        source.push_many(["x" * 100] * messages)
        figure = rate(lambda: source.move(ALL, to=target), messages)
        assert target.stats().ready == messages, "all messages"
        assert source.stats().ready == 0, "each in one queue"
        source.drop()
        target.drop()
        return figure


def main() -> None:
    arguments = chosen(parser(__doc__, ["sqlite", "postgresql", "mariadb"]))
    messages = FULL if arguments.full else MESSAGES
    figures: list[Figure] = []
    with ExitStack() as stack:
        sources = {engine: stack.enter_context(PLACES[engine]()) for engine in arguments.engines}
        targets = sources | {engine: stack.enter_context(PLACES[engine]()) for engine in arguments.engines[:1]}
        for engine, url in sources.items():
            works = {f"to {LABELS[other]}": partial(move, url, there, messages) for other, there in targets.items()}
            rates = interleaved(works, arguments.repeats, LABELS[engine])
            figures += [Figure(LABELS[engine], name, OURS, "messages/s", rates[name]) for name in works]
    save("moving", "Moves between databases", CONDITIONS, figures, keep=arguments.full)


if __name__ == "__main__":
    main()
