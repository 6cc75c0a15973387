"""SQLite under many processes: the file lock before BEGIN IMMEDIATE against SQLite's own waiting (busy_timeout).

    python -m benchmarks.fair_lock [--processes 64] [--seconds 4] [--rounds 3]

Each process pushes one message, pops one and completes it, again and again for the given time. Printed per way and
round: cycles a second of all together, cycles of the slowest and the fastest process, the longest single cycle.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
from multiprocessing.synchronize import Barrier
from time import perf_counter
from typing import Any

import sqlalchemy as sa
from rich.console import Console
from rich.table import Table

import tablequeue
from benchmarks.places import machine, sqlite_url
from tablequeue.database import Database
from tablequeue.engines.base import Held
from tablequeue.engines.runner import Runner
from tablequeue.engines.sqlite.engine import SQLite


class Impatient(SQLite):
    """The same engine without the file lock: whoever comes at the right moment wins."""

    def hold(self, dbapi: Any) -> Held:
        held = super().hold(dbapi)
        plain = Held(held.dbapi, held.cursor)
        plain.begin = lambda: plain.cursor.execute("begin immediate")  # type: ignore[method-assign]
        return plain


WAYS = {"file lock": SQLite, "busy_timeout": Impatient}


def cycles(url: str, way: str, seconds: float, start: Barrier, results: Any) -> None:
    sa_engine = sa.create_engine(url, connect_args={"timeout": 60})
    database = Database(sa_engine, Runner(sa_engine, WAYS[way](sa_engine.dialect)), None)
    queue = database.queue("bench")
    start.wait()
    end = perf_counter() + seconds
    count, longest = 0, 0.0
    while (began := perf_counter()) < end:
        queue.push("x" * 100)
        if message := queue.pop():
            message.complete()
        count += 1
        longest = max(longest, perf_counter() - began)
    results.put((count, longest))


def crowd(way: str, processes: int, seconds: float) -> list[tuple[int, float]]:
    context = mp.get_context("fork")
    with sqlite_url() as url:
        with tablequeue.connect(url) as database:
            database.create_queue("bench", payload="text")
        start, results = context.Barrier(processes), context.Queue()
        members = [context.Process(target=cycles, args=(url, way, seconds, start, results)) for _ in range(processes)]
        for member in members:
            member.start()
        found = [results.get() for _ in members]
        for member in members:
            member.join()
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    table = Table("round", "way", title=f"{machine()}; {arguments.processes} processes, {arguments.seconds:g} s each")
    for name in ("cycles/s", "slowest", "fastest", "longest cycle, s"):
        table.add_column(name, justify="right")
    for i in range(arguments.rounds):
        for way in WAYS:
            found = crowd(way, arguments.processes, arguments.seconds)
            counts = [count for count, _ in found]
            longest = max(seconds for _, seconds in found)
            rate = sum(counts) / arguments.seconds
            table.add_row(str(i + 1), way, f"{rate:,.0f}", f"{min(counts):,}", f"{max(counts):,}", f"{longest:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
