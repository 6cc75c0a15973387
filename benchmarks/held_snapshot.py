"""A transaction stays open while a queue is drained: does the claim get slower, with and without the low-water mark?

    python -m benchmarks.held_snapshot [--messages 50000] [--batch 10]

PostgreSQL cannot clean up what a repeatable-read transaction may yet look at, so the index of the ready messages keeps
an entry for each that was ever ready. The figure is the rate of the last fifth of the messages over that of the
first fifth; 1 is flat. Every commit is flushed; each message is checked to come once.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from time import perf_counter

from rich.console import Console
from rich.progress import track
from rich.table import Table

import tablequeue
from benchmarks.places import machine, postgresql_url
from tablequeue.definition import Definition
from tablequeue.engines.base import Engine
from tablequeue.engines.postgresql.engine import PostgreSQL, PostgresTable
from tablequeue.engines.runner import Runner

FIFTHS = 5


class Unmarked(PostgresTable):
    """A table whose low-water mark never rises: each claim walks the index from its beginning."""

    @property
    def low_water(self) -> int:
        return 0

    @low_water.setter
    def low_water(self, id: int) -> None:
        pass


class WithoutMark(PostgreSQL):
    def table(self, name: str, definition: Definition) -> PostgresTable:
        return Unmarked(self, name, definition)


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
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=10)
    arguments = parser.parse_args()
    table = Table("low-water mark", "snapshot", title=f"{machine()}; pop + complete by {arguments.batch}")
    for name in ("first fifth, messages/s", "last fifth", "last / first"):
        table.add_column(name, justify="right")
    with postgresql_url() as url:
        for engine_class, held in ((PostgreSQL, False), (PostgreSQL, True), (WithoutMark, False), (WithoutMark, True)):
            rates = drain(url, engine_class, arguments.messages, arguments.batch, held)
            table.add_row(
                "no" if engine_class is WithoutMark else "yes",
                "held" if held else "none",
                f"{rates[0]:,.0f}",
                f"{rates[-1]:,.0f}",
                f"{rates[-1] / rates[0]:.2f}",
            )
    Console().print(table)


if __name__ == "__main__":
    main()
