"""Measure whether claims get slower while a transaction stays open, with and without the low-water mark.

    python -m benchmarks.held_snapshot [--engines postgresql,mariadb] [--repeats 5] [--full]

PostgreSQL and MariaDB cannot clean up rows that a repeatable-read transaction may still read. So the index of ready
messages keeps an entry for each message that was ever ready. The figure is the rate of the last fifth of the messages
divided by that of the first fifth; 1 is flat. Every commit is flushed, and each message must be delivered once. Runs on
PostgreSQL by default. A full run also measures without the snapshot, and without the mark.

On PostgreSQL, also the time from a push to the pop under a steady load, which leaves nearly all claims short: in the
last seconds before the snapshot, and in the last ones of 200 s (60 s in a short run) with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from time import sleep

import sqlalchemy as sa

import tablequeue
from benchmarks.options import chosen, parser
from benchmarks.places import LABELS, PLACES
from benchmarks.results import OURS, Figure, save
from benchmarks.rounds import interleaved, rate
from benchmarks.steady import BATCH, percentile, steady, window
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
# The messages a second of each shape of the steady load.
SPEEDS = {f"by {BATCH}": 800, "one by one": 200}
PERCENTILES = {"p50": 0.5, "p99": 0.99}
# Seconds until the load is steady, and of each window that is compared.
SETTLE, WINDOW = 5.0, 20.0
# Seconds for which the snapshot is held, and rounds.
LATENCY, LATENCY_FULL = (60.0, 1), (200.0, 3)
# The p99 without a snapshot, divided by that with one.
LATENCY_AIM = 0.67
CONDITIONS = (
    f"{FULL:,} messages, popped and completed in batches; and the times from a push to the pop under a steady load, "
    "before a snapshot is held and at the end of its time. Every commit is flushed."
)

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


def held_reader(url: str) -> AbstractContextManager[sa.Connection]:
    """Hold a snapshot of the database."""
    reader = sa.create_engine(url).connect().execution_options(isolation_level="REPEATABLE READ")
    reader.exec_driver_sql("select 1")
    return reader


def latencies(url: str, shape: str, rate: float, held: float, marks: bool) -> dict[str, float]:
    """Return the percentiles before and with the snapshot, in ms, and the first divided by the second."""
    with steady(url, rate, shape, marks) as timed:
        sleep(SETTLE)
        before = window(WINDOW)
        with held_reader(url):
            sleep(held - WINDOW)
            after = window(WINDOW)
    found: dict[str, float] = {}
    for name, share in PERCENTILES.items():
        free, slow = (percentile(timed, each, share) for each in (before, after))
        found |= {f"{name}, no snapshot": free, f"{name}, held for {held:.0f} s": slow, f"{name}: ratio": free / slow}
    return found


def latency_figures(url: str, held: float, repeats: int) -> Iterator[Figure]:
    for shape, speed in SPEEDS.items():
        for marks in (True, False) if held == LATENCY_FULL[0] else (True,):
            rounds = [latencies(url, shape, speed, held, marks) for _ in range(repeats)]
            for what in rounds[0]:
                aim = LATENCY_AIM if marks and what == "p99: ratio" else None
                unit = "ratio" if what.endswith("ratio") else "ms"
                named = f"{speed:,}/s {shape}{'' if marks else ', no marks'}: {what}"
                yield Figure(LABELS["postgresql"], named, OURS, unit, [each[what] for each in rounds], aim)


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
            if engine == "postgresql":
                figures += latency_figures(url, *(LATENCY_FULL if arguments.full else LATENCY))
    save("held_snapshot", "A held snapshot", CONDITIONS, figures, keep=arguments.full)


if __name__ == "__main__":
    main()
