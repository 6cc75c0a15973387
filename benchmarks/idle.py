"""The cost of waiting: statements of an idle worker, the time from a push to its handler, and pushes while consumers
wait.

    python -m benchmarks.idle [--parts statements,latency,pushes] [--engines ...] [--repeats 5] [--full]

The database itself counts the statements (on SQLite its trace does), after the pauses have grown to their maximum. The
latency is the time from before the push in another process to the first line of the handler. There is a message every
20 to 100 ms, so the worker waits for each. For the rate of pushes, four processes push one by one to PostgreSQL while
consumers wait that get no messages, so that every push finds a waiting consumer. This is the worst case. It is compared
with SQL that never notifies, and that always does. Figures are stored after a full run of all parts on all engines.
"""

from __future__ import annotations

import multiprocessing
import random
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from threading import Thread
from typing import Any

import sqlalchemy as sa

import tablequeue
from benchmarks.options import chosen, parser
from benchmarks.places import LABELS, PLACES
from benchmarks.results import OURS, Figure, save
from benchmarks.rounds import interleaved
from tablequeue import Claim, Database
from tablequeue.engines.postgresql.engine import PostgreSQL
from tablequeue.engines.runner import Runner
from tablequeue.engines.table import Table
from tablequeue.ext import waiter_of
from tablequeue.worker import Handler, Worker

PRODUCERS = 4
WAITING = (0, 1, 50)
# Seconds until an idle worker has reached its longest pause, and seconds in which its statements are counted.
SETTLE, COUNTED = 26, 60
# Messages in a round, and seconds of a round of pushes.
MESSAGES, FULL = 40, 200
SECONDS, FULL_SECONDS = 0.5, 2
# The aims: statements a minute of an idle worker, and milliseconds to the handler at the median and the 99th
# percentile. MariaDB has no notifications, so it has no aim.
AIMS = {"sqlite": (12, 5, 25), "postgresql": (12, 5, 25), "mariadb": (None, None, None)}
CONDITIONS = f"A worker with one waiting consumer; {FULL} messages a round. Every commit is flushed."

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["benchmarks.idle"])  # imported once


class Never(PostgreSQL):
    def words(self, table: Table, state: str = "ready") -> dict[str, str]:
        return super().words(table, state) | {"waited_for": "false"}


class Always(PostgreSQL):
    def words(self, table: Table, state: str = "ready") -> dict[str, str]:
        return super().words(table, state) | {"waited_for": f"(select pg_notify('{table.table_name}', '') is null)"}


PUSHES: dict[str, type[PostgreSQL]] = {OURS: PostgreSQL, "never notifies": Never, "always notifies": Always}


def open_with(engine_class: type[PostgreSQL], url: str) -> Database:
    sa_engine = sa.create_engine(url)
    return Database(sa_engine, Runner(sa_engine, engine_class(sa_engine.dialect)), None)


@contextmanager
def counting(kind: str, url: str) -> Iterator[Callable[[], int]]:
    """Yield a function that returns the number of statements that the database has run so far."""
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


def idle_statements(urls: dict[str, str], settle: float, seconds: float) -> dict[str, float]:
    """Return the statements a minute of a worker on each of the databases, measured at the same time."""
    with ExitStack() as stack:
        counters = {kind: stack.enter_context(counting(kind, url)) for kind, url in urls.items()}
        for url in urls.values():
            database = stack.enter_context(tablequeue.connect(url))
            stack.enter_context(working(database, lambda message: None))
        time.sleep(settle)
        before = {kind: counter() for kind, counter in counters.items()}
        time.sleep(seconds)
        # The servers also count the statement that counts.
        ran = {kind: counter() - before[kind] - (kind != "sqlite") for kind, counter in counters.items()}
    return {kind: number * 60 / seconds for kind, number in ran.items()}


def latencies(url: str, messages: int) -> Sequence[float]:
    """Return the milliseconds from the push to the handler, as the percentiles 1 to 99."""
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
    return statistics.quantiles(seen, n=100)


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


def push_rate(url: str, variant: str, waiting: int, seconds: float) -> float:
    """Return the pushes a second of all producers together."""
    with ExitStack() as stack:
        for _ in range(waiting):
            database = stack.enter_context(tablequeue.connect(url))
            stack.enter_context(waiter_of(database.queue("pushed"))).wait(0)
        barrier, rates = _processes.Barrier(PRODUCERS), _processes.Queue()
        arguments = (url, variant, seconds, barrier, rates)
        producers = [_processes.Process(target=push_for, args=arguments) for _ in range(PRODUCERS)]
        for producer in producers:
            producer.start()
        total = sum(rates.get() for _ in producers)
        for producer in producers:
            producer.join()
    return float(total)


# -- the parts ---------------------------------------------------------------------------------------------------------


def statements(urls: dict[str, str], repeats: int, full: bool) -> Iterator[Figure]:
    counted = idle_statements(urls, SETTLE, COUNTED)
    for kind, number in counted.items():
        yield Figure(LABELS[kind], "asked by an idle worker", OURS, "statements/min", [number], AIMS[kind][0])


def latency(urls: dict[str, str], repeats: int, full: bool) -> Iterator[Figure]:
    rounds = [
        {kind: latencies(url, FULL if full else MESSAGES) for kind, url in urls.items()} for _ in range(repeats + 1)
    ][1:]  # the first round is a warm-up
    for kind in urls:
        for share, aim in zip((50, 99), AIMS[kind][1:], strict=True):
            found = [each[kind][share - 1] for each in rounds]
            yield Figure(LABELS[kind], f"push to handler, {share} %", OURS, "ms", found, aim)


def pushes(urls: dict[str, str], repeats: int, full: bool) -> Iterator[Figure]:
    kind = "postgresql"
    if kind not in urls:
        return
    with tablequeue.connect(urls[kind]) as database:
        database.create_queue("pushed", payload="text")
    seconds = FULL_SECONDS if full else SECONDS
    for number in WAITING:
        works = {each: partial(push_rate, urls[kind], each, number, seconds) for each in PUSHES}
        for variant, rates in interleaved(works, repeats, f"{number} waiting").items():
            yield Figure(LABELS[kind], f"push, {number} waiting in vain", variant, "messages/s", rates)


PARTS = {part.__name__: part for part in (statements, latency, pushes)}


def main() -> None:
    options = parser(__doc__, list(PLACES))
    options.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS), help=",".join(PARTS))
    arguments = chosen(options)
    figures: list[Figure] = []
    with ExitStack() as stack:
        urls = {kind: stack.enter_context(PLACES[kind]()) for kind in arguments.engines}
        for url in urls.values():
            with tablequeue.connect(url) as database:
                database.create_queue("work")
        for part in arguments.parts:
            figures += PARTS[part](urls, arguments.repeats, arguments.full)
    whole = set(arguments.parts) == set(PARTS) and set(urls) == set(PLACES)
    save("idle", "Waiting", CONDITIONS, figures, keep=whole and arguments.full)


if __name__ == "__main__":
    main()
