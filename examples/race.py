"""The race of a work queue: several workers select the next message, then update it, and work it twice.

    python -m examples.race [--url sqlite:///race.db]

Four workers empty a table of 100 messages. First the naive way, on a table with a `processed` flag: select the first
message that is not processed, then mark it. Between the two statements nothing keeps the others from selecting the same
one. Then the same workers on a queue, where a claim is one atomic statement.

The workers wait for each other between having a message and going on: that is the moment at which the race is lost, and
meeting there makes it be lost every time instead of now and then. The queue has to stand the same meeting.
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


def naive(engine: sa.Engine, meet: Barrier) -> list[int]:
    """Select, then update. The messages that this worker worked."""
    worked: list[int] = []
    first = sa.select(work.c.id).where(~work.c.processed).order_by(work.c.id).limit(1)
    while True:
        with engine.begin() as connection:
            id = connection.scalar(first)
        if id is None:
            meet.abort()
            return worked
        meet_others(meet)
        with engine.begin() as connection:
            connection.execute(sa.update(work).where(work.c.id == id).values(processed=True))
        worked.append(id)


def claiming(engine: sa.Engine, meet: Barrier) -> list[int]:
    """Pop, then complete. The messages that this worker worked."""
    worked: list[int] = []
    queue = tablequeue.connect(engine).queue("race")
    while True:
        message = queue.pop()
        if message is None:
            meet.abort()
            return worked
        meet_others(meet)
        worked.append(message.payload)
        message.complete()


def meet_others(meet: Barrier) -> None:
    try:
        meet.wait()
    except BrokenBarrierError:
        return  # the first of them found nothing and went home: go on alone


def race(engine: sa.Engine, worker: Worker) -> Counter[int]:
    """Let all workers work at once; how often each message was worked."""
    meet = Barrier(WORKERS, timeout=60)
    with ThreadPoolExecutor(WORKERS) as threads:
        members = [threads.submit(worker, engine, meet) for _ in range(WORKERS)]
        return Counter(id for member in members for id in member.result())


def main(url: str) -> None:
    # A pool as large as need be: a worker must not wait for another one's connection.
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
            worked = race(engine, worker)
            once = sum(times == 1 for times in worked.values())
            numbers = (worked.total(), once, len(worked) - once, MESSAGES - len(worked))
            table.add_row(name, *map(str, numbers))
        Console().print(table)
    finally:
        queue.drop()
        metadata.drop_all(engine)
        database.close()
        engine.dispose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", help="a database to race in, instead of a temporary SQLite file")
    with tempfile.TemporaryDirectory(prefix="tablequeue-race-") as folder:
        main(parser.parse_args().url or f"sqlite:///{Path(folder, 'race.db')}")
