"""What waiting costs: statements of an idle worker, the time from a push to its handler, and pushes beside who waits.

    python -m benchmarks.idle [--seconds 60] [--messages 300]

The statements are counted by the database itself (on SQLite by its trace), after the pauses have grown to their
longest. The latency is from before a push in another process to the first line of the handler, a message every 20 to
100 ms, so that the worker waits for each. For the pushes, four processes push one by one to PostgreSQL while readers
wait that get nothing, so that every push finds somebody: the worst case, beside texts that never and always notify.
Every commit is flushed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Thread
from typing import Any

import sqlalchemy as sa
from rich.console import Console
from rich.table import Table

import tablequeue
from benchmarks.places import PLACES, machine
from tablequeue import Claim, Database
from tablequeue.definition import Definition
from tablequeue.engines.postgresql.engine import PostgreSQL
from tablequeue.engines.runner import Runner
from tablequeue.worker import Handler, Worker

PRODUCERS = 4
WAITING = (0, 1, 50)
# Seconds until an idle worker looks as seldom as it ever does.
SETTLE = 26

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["benchmarks.idle"])  # imported once


class Never(PostgreSQL):
    def words(self, name: str, definition: Definition, state: str) -> dict[str, str]:
        return super().words(name, definition, state) | {"rung": "true"}


class Always(PostgreSQL):
    def words(self, name: str, definition: Definition, state: str) -> dict[str, str]:
        return super().words(name, definition, state) | {"rung": f"(select pg_notify('tq_{name}', '') is not null)"}


PUSHES: dict[str, type[PostgreSQL]] = {"never notifies": Never, "as it is": PostgreSQL, "always notifies": Always}


def open_with(engine_class: type[PostgreSQL], url: str) -> Database:
    sa_engine = sa.create_engine(url)
    return Database(sa_engine, Runner(sa_engine, engine_class(sa_engine.dialect)), None)


@contextmanager
def counting(kind: str, url: str) -> Iterator[Callable[[], int]]:
    """How many statements the database has run so far."""
    if kind == "sqlite":
        traced: list[str] = []

        def trace(dbapi: Any, record: object) -> None:
            if isinstance(dbapi, sqlite3.Connection):
                dbapi.set_trace_callback(traced.append)

        sa.event.listen(sa.Engine, "connect", trace)
        yield lambda: len(traced)
        return
    text = {
        "postgresql": "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()",
        "mariadb": "select variable_value from information_schema.global_status where variable_name = 'QUESTIONS'",
    }[kind]
    with sa.create_engine(url, isolation_level="AUTOCOMMIT").connect() as connection:
        yield lambda: int(connection.exec_driver_sql(text).scalar_one())


@contextmanager
def working(database: Database, handler: Callable[[Claim], Any]) -> Iterator[Worker]:
    worker = Worker(minimum=1)
    worker.add(Handler("work", handler))
    thread = Thread(target=worker.run, args=(database,))
    thread.start()
    yield worker
    worker.stop()
    thread.join()


def produce(url: str, messages: int, seed: int) -> None:
    chance = random.Random(seed)
    with tablequeue.connect(url) as database:
        queue = database.queue("work")
        for _ in range(messages):
            time.sleep(chance.uniform(0.02, 0.1))
            queue.push(time.time())


def latencies(url: str, messages: int) -> list[float]:
    """Milliseconds from the push to the handler."""
    seen: list[float] = []
    with tablequeue.connect(url) as database:
        queue = database.queue("work")
        with working(database, lambda message: seen.append((time.time() - message.payload) * 1000)):
            producer = _processes.Process(target=produce, args=(url, messages, 1))
            producer.start()
            producer.join()
            while queue.stats().ready:
                time.sleep(0.1)
    assert len(seen) == messages, "each message once"
    return seen


def push_for(url: str, variant: str, seconds: float, barrier: Any, rates: Any) -> None:
    database = open_with(PUSHES[variant], url)
    queue = database.queue("pushed")
    queue.push("x" * 100)
    barrier.wait()
    count, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        queue.push("x" * 100)
        count += 1
    rates.put(count / seconds)
    database.close()


def push_rate(url: str, variant: str, waiting: int, seconds: float = 2.0) -> float:
    """Pushes a second of all producers together."""
    with ExitStack() as stack:
        for _ in range(waiting):
            database = stack.enter_context(tablequeue.connect(url))
            stack.enter_context(database.queue("pushed").waiter()).wait(0)
        barrier, rates = _processes.Barrier(PRODUCERS), _processes.Queue()
        arguments = (url, variant, seconds, barrier, rates)
        producers = [_processes.Process(target=push_for, args=arguments) for _ in range(PRODUCERS)]
        for producer in producers:
            producer.start()
        total = sum(rates.get() for _ in producers)
        for producer in producers:
            producer.join()
    return float(total)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--messages", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    waits = Table("engine", title=f"{machine()}; an idle worker, and one that waits for each message")
    for name in ("statements a minute, idle", "push to handler p50, ms", "p99, ms"):
        waits.add_column(name, justify="right")
    console = Console()
    pushes = Table("pushes a second to PostgreSQL")
    for number in WAITING:
        pushes.add_column(f"{number} waiting", justify="right")
    with ExitStack() as stack:
        urls = {kind: stack.enter_context(place()) for kind, place in PLACES.items()}
        counters = {kind: stack.enter_context(counting(kind, url)) for kind, url in urls.items()}
        databases = {kind: stack.enter_context(tablequeue.connect(url)) for kind, url in urls.items()}
        for database in databases.values():
            database.create_queue("work")
        with ExitStack() as idle:
            for database in databases.values():
                idle.enter_context(working(database, lambda message: None))
            time.sleep(SETTLE)
            before = {kind: counter() for kind, counter in counters.items()}
            time.sleep(arguments.seconds)
            # The servers count the counting too.
            ran = {kind: counter() - before[kind] - (kind != "sqlite") for kind, counter in counters.items()}
        for kind, url in urls.items():
            spread = statistics.quantiles(latencies(url, arguments.messages), n=100)
            waits.add_row(kind, f"{ran[kind] * 60 / arguments.seconds:.0f}", f"{spread[49]:.1f}", f"{spread[98]:.1f}")
        console.print(waits)
        url = urls["postgresql"]
        databases["postgresql"].create_queue("pushed", payload="text")
        for variant in PUSHES:
            rates = [
                statistics.median(push_rate(url, variant, number) for _ in range(arguments.rounds))
                for number in WAITING
            ]
            pushes.add_row(variant, *(f"{rate:,.0f}" for rate in rates))
    console.print(pushes)


if __name__ == "__main__":
    main()
