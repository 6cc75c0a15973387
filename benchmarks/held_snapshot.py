"""Measure whether claims get slower while a transaction stays open, with and without the low-water mark.

    python -m benchmarks.held_snapshot [--engines postgresql,mariadb] [--repeats 5] [--full]

PostgreSQL and MariaDB cannot clean up rows that a repeatable-read transaction may still read. So the index of ready
messages keeps an entry for each message that was ever ready. The figure is the rate of the last fifth of the messages
divided by that of the first fifth; 1 is flat. Every commit is flushed, and each message must be delivered once. Runs on
PostgreSQL by default. A full run also measures without the snapshot, and without the mark.
"""

from __future__ import annotations

from functools import partial

import tablequeue
from benchmarks.options import chosen, parser
from benchmarks.places import LABELS, PLACES
from benchmarks.results import OURS, Figure, save
from benchmarks.rounds import interleaved, rate
from tablequeue.engines.connection import Cursor
from tablequeue.engines.engine import Engine
from tablequeue.engines.mysql.engine import MySQL
from tablequeue.engines.postgresql.engine import PostgreSQL
from tablequeue.engines.runner import Runner

FIFTHS = 5
MESSAGES, FULL = 10_000, 50_000
# A fifth takes some seconds, and a checkpoint of the server can take half of them: figures of single rounds with
# batches of 10 were 0.5 to 1.6.
FULL_REPEATS = 9
# Batch sizes: a small one, whose claims walk the most entries, and that of the bulk workload.
BATCHES = (10, 1_000)
HELD = "a held snapshot"
AIM = 0.9
CONDITIONS = f"{FULL:,} messages, popped and completed in batches. Every commit is flushed."

ENGINES: dict[str, type[Engine]] = {"postgresql": PostgreSQL, "mariadb": MySQL}


def without_mark(engine: type[Engine]) -> type[Engine]:
    """Return an engine whose low-water mark never rises: each claim walks the index from its beginning."""

    class WithoutMark(engine):  # type: ignore[misc, valid-type]
        def is_ours(self, cursor: Cursor) -> bool:
            return False

    return WithoutMark


def drain(url: str, engine_class: type[Engine], held: bool, messages: int, batch: int) -> float:
    """Return the rate of the last fifth divided by that of the first."""
    with tablequeue.connect(url) as plain:
        sa_engine = plain.engine
        database = tablequeue.Database(sa_engine, Runner(sa_engine, engine_class(sa_engine.dialect)), None)
        queue = database.create_queue("work", payload="text")
        queue.push_many(["x" * 100] * messages)
        reader = sa_engine.connect().execution_options(isolation_level="REPEATABLE READ")
        if held:
            reader.exec_driver_sql("select count(*) from tq_work")
        seen: set[int] = set()

        def fifth() -> None:
            for _ in range(messages // FIFTHS // batch):
                claims = queue.pop_many(batch)
                queue.complete_many(claims)
                seen.update(claim.id for claim in claims)

        rates = [rate(fifth, messages // FIFTHS) for _ in range(FIFTHS)]
        assert len(seen) == messages, "each message once"
        reader.close()
        queue.drop()
        database.close()
        return rates[-1] / rates[0]


def main() -> None:
    arguments = chosen(parser(__doc__, ["postgresql"]), FULL_REPEATS)
    messages = FULL if arguments.full else MESSAGES
    figures: list[Figure] = []
    for engine in arguments.engines:
        marked = ENGINES[engine]
        ways = {HELD: (marked, True)}
        if arguments.full:
            ways |= {"no snapshot": (marked, False), "a held snapshot, no mark": (without_mark(marked), True)}
        with PLACES[engine]() as url:
            for batch in BATCHES:
                works = {way: partial(drain, url, *of, messages, batch) for way, of in ways.items()}
                for way, ratios in interleaved(works, arguments.repeats, f"{LABELS[engine]}, by {batch:,}").items():
                    what = f"{way}, by {batch:,}: last fifth / first"
                    aim = AIM if way == HELD else None
                    figures.append(Figure(LABELS[engine], what, OURS, "ratio", ratios, aim))
    save("held_snapshot", "A held snapshot", CONDITIONS, figures, keep=arguments.full)


if __name__ == "__main__":
    main()
