"""The race of a work queue: several workers select the next message, then update it, and process it twice.

    python -m examples.race [--url sqlite:///race.db]

Four workers process the 100 messages of a table. First they do it the naive way, with a `processed` flag: they select
the first message that is not processed, then mark it. Between the two statements, other workers can select the same
message. Then they use a queue, where a claim is one atomic statement.

After each select or pop the workers wait for each other at a barrier. This is the moment of the race, and with the
barrier it happens every time instead of now and then. The queue has to pass the same test.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, BrokenBarrierError

import sqlalchemy as sa
from rich.console import Console
from rich.table import Table

import tablequeue

WORKERS, MESSAGES = 4, 100

Worker = Callable[[sa.Engine, Barrier], list[int]]

metadata = sa.MetaData()
work = sa.Table(
    "race_work",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("processed", sa.Boolean, nullable=False),
)


def naive(engine: sa.Engine, barrier: Barrier) -> list[int]:
    """Select, then update. Returns the messages that this worker processed."""
    processed_ids: list[int] = []
    first = sa.select(work.c.id).where(~work.c.processed).order_by(work.c.id).limit(1)
    while True:
        with engine.begin() as connection:
            id = connection.scalar(first)
        if id is None:
            barrier.abort()
            return processed_ids
        wait_for_others(barrier)
        with engine.begin() as connection:
            connection.execute(sa.update(work).where(work.c.id == id).values(processed=True))
        processed_ids.append(id)


def claiming(engine: sa.Engine, barrier: Barrier) -> list[int]:
    """Pop, then complete. Returns the messages that this worker processed."""
    processed_ids: list[int] = []
    queue = tablequeue.connect(engine).queue("race")
    while True:
        message = queue.pop()
        if message is None:
            barrier.abort()
            return processed_ids
        wait_for_others(barrier)
        processed_ids.append(message.payload)
        message.complete()


def wait_for_others(barrier: Barrier) -> None:
    try:
        barrier.wait()
    except BrokenBarrierError:
        return  # another worker found nothing more and has ended: continue alone


def race(engine: sa.Engine, worker: Worker) -> Counter[int]:
    """Run all workers at once. Returns how often each message was processed."""
    barrier = Barrier(WORKERS, timeout=60)
    with ThreadPoolExecutor(WORKERS) as threads:
        members = [threads.submit(worker, engine, barrier) for _ in range(WORKERS)]
        return Counter(id for member in members for id in member.result())


def main(url: str) -> None:
    # The pool is large enough that no worker waits for the connection of another.
    engine = sa.create_engine(url, pool_size=2 * WORKERS)
    database = tablequeue.connect(engine)
    metadata.create_all(engine)
    queue = database.create_queue("race")
    try:
        with engine.begin() as connection:
            connection.execute(sa.insert(work), [{"id": id, "processed": False} for id in range(1, MESSAGES + 1)])
        queue.push_many(range(1, MESSAGES + 1))
        ways = {"select, then update": naive, "tablequeue's pop": claiming}
        table = Table("claim", title=f"{MESSAGES} messages, {WORKERS} workers, {engine.dialect.name}")
        for column in ("deliveries", "delivered once", "more than once", "never"):
            table.add_column(column, justify="right")
        for name, worker in ways.items():
            times = race(engine, worker)
            once = sum(number == 1 for number in times.values())
            numbers = (times.total(), once, len(times) - once, MESSAGES - len(times))
            table.add_row(name, *map(str, numbers))
        Console().print(table)
    finally:
        queue.drop()
        metadata.drop_all(engine)
        database.close()
        engine.dispose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", help="the database to use instead of a temporary SQLite file")
    with tempfile.TemporaryDirectory(prefix="tablequeue-race-") as folder:
        main(parser.parse_args().url or f"sqlite:///{Path(folder, 'race.db')}")
