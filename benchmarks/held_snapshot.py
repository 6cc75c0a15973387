"""A transaction stays open while a queue is drained: does the claim get slower, with and without the low-water mark?

    python -m benchmarks.held_snapshot [postgresql|mariadb ...] [--messages 50000] [--batch 10]

Neither PostgreSQL nor MariaDB can clean up what a repeatable-read transaction may yet look at, so the index of the
ready messages keeps an entry for each that was ever ready. The figure is the rate of the last fifth of the messages
over that of the first fifth; 1 is flat. Every commit is flushed; each message is checked to come once.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from time import perf_counter

from rich.console import Console
from rich.progress import track
from rich.table import Table

import tablequeue
from benchmarks.places import PLACES, machine
from tablequeue.engines.base import Cursor, Engine
from tablequeue.engines.low_water import LowWater
from tablequeue.engines.mysql.engine import MySQL
from tablequeue.engines.postgresql.engine import PostgreSQL
from tablequeue.engines.runner import Runner

FIFTHS = 5

ENGINES: dict[str, type[LowWater]] = {"postgresql": PostgreSQL, "mariadb": MySQL}


def without_mark(engine: type[LowWater]) -> type[LowWater]:
    """An engine whose low-water mark never rises: each claim walks the index from its beginning."""

    class WithoutMark(engine):  # type: ignore[misc, valid-type]
        def commits(self, cursor: Cursor) -> bool:
            return False

    return WithoutMark


def drain(url: str, engine_class: type[Engine], messages: int, batch: int, held: bool) -> Sequence[float]:
    """Messages a second in each fifth."""
    with tablequeue.connect(url) as plain:
        sa_engine = plain.engine
        database = tablequeue.Database(sa_engine, Runner(sa_engine, engine_class(sa_engine.dialect)), None)
        queue = database.create_queue("work", payload="text")
        queue.push_many(["x" * 100] * messages)
        reader = sa_engine.connect().execution_options(isolation_level="REPEATABLE READ")
        if held:
            reader.exec_driver_sql("select count(*) from tq_work")
        rates: list[float] = []
        seen: set[int] = set()
        label = f"{engine_class.__name__}, {'held' if held else 'no'} snapshot"
        for _ in track(range(FIFTHS), label, transient=True):
            started = perf_counter()
            for _ in range(messages // FIFTHS // batch):
                claims = queue.pop_many(batch)
                queue.complete_many(claims)
                seen.update(claim.id for claim in claims)
            rates.append(messages / FIFTHS / (perf_counter() - started))
        assert len(seen) == messages, "each message once"
        reader.close()
        queue.drop()
        database.close()
        return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("engines", nargs="*", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=10)
    arguments = parser.parse_args()
    table = Table("engine", "mark", "snapshot", title=f"{machine()}; pop + complete by {arguments.batch}")
    for name in ("first fifth, messages/s", "last fifth", "last / first"):
        table.add_column(name, justify="right")
    for name in arguments.engines:
        with PLACES[name]() as url:
            marked = ENGINES[name]
            for engine_class, mark in ((marked, "yes"), (without_mark(marked), "no")):
                for held in (False, True):
                    rates = drain(url, engine_class, arguments.messages, arguments.batch, held)
                    first, last = rates[0], rates[-1]
                    snapshot = "held" if held else "none"
                    table.add_row(name, mark, snapshot, f"{first:,.0f}", f"{last:,.0f}", f"{last / first:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
