"""Backups and restores: `python -m tests.backups` prints what a copy of a database in the middle of its work has.

By hand, because it starts servers and waits for leases. docs/deploy.md has what it found.
"""

from __future__ import annotations

import sqlite3
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import sleep
from typing import NamedTuple

import sqlalchemy as sa

import tablequeue
from tablequeue import Claim, Database
from tablequeue.bulk.stream import Stream, streams
from tablequeue.errors import TablequeueError
from tests.servers import postgresql_bin, postgresql_server

LEASE = 2.0


class Work(NamedTuple):
    database: Database
    held: Sequence[Claim]


def begin(url: str) -> Work:
    """Leave messages in every state, claims of each kind, and the batch of a stream open."""
    database = tablequeue.connect(url)
    work = database.create_queue("work", lease=LEASE)
    work.push_many(range(10))
    held = work.pop_many(3)
    work.push("later", delay=3600)
    work.push("keyed", key="k1")
    large = database.create_queue("large", lease=LEASE)
    large.push_many(range(500))
    large.pop_many(400)
    topic = database.create_topic("events", keep="consumed")
    mail = topic.subscribe("mail", lease=LEASE)
    topic.push_many(range(20))
    mail.complete_many(mail.pop_many(5))
    mail.pop_many(5)
    Stream(work, "pipeline/stage").advance(0, 2)
    return Work(database, held)


def tell(what: str, database: Database) -> None:
    print(f"  {what}:")
    for name in ("work", "large", "events/mail"):
        queue = database.consumer(name)
        stats = queue.stats()
        counts = {state: getattr(stats, state) for state in ("ready", "scheduled", "in_progress", "finished")}
        opened = {one.stream: one.open for one in streams(queue)} if name == "work" else ""
        print(f"    {name:12} {counts} {stats.lag or ''} {opened}")


def go_on(copy: Database, held: Sequence[Claim]) -> None:
    """Work on with a copy."""
    work, mail = copy.queue("work"), copy.topic("events").subscription("mail")
    try:
        work.complete(held[0])
        print("  a claim from before completes on the copy while its lease runs")
    except TablequeueError as error:
        print(f"  a claim from before: {error.cause}")
    sleep(LEASE + 0.1)
    again = work.pop_many(20)
    print(f"  after the leases: {len(again)} popped, of attempts {sorted({claim.attempt for claim in again})}")
    copy.topic("events").push_many(range(100, 105))
    seen: list[int] = []
    while batch := mail.pop_many(50):
        seen += [claim.payload for claim in batch]
        mail.complete_many(batch)
    print(f"  the subscription gets {sorted(seen)}")
    large = copy.queue("large")
    print(f"  of the large: {sum(len(large.pop_many(100)) for _ in range(6))}")
    try:
        work.push("keyed", key="k1")
    except TablequeueError as error:
        print(f"  the key: {error.cause}")
    print(f"  the stream: {Stream(work, 'pipeline/stage').found}")


def close(*databases: Database) -> None:
    for database in databases:
        database.close()
        database.engine.dispose()


def sqlite(folder: Path) -> None:
    print("SQLite, .backup:")
    work = begin(f"sqlite:///{folder / 'a.db'}")
    source, target = sqlite3.connect(folder / "a.db"), sqlite3.connect(folder / "b.db")
    source.backup(target)
    source.close()
    target.close()
    copy = tablequeue.connect(f"sqlite:///{folder / 'b.db'}")
    tell("before", work.database)
    tell("the copy", copy)
    go_on(copy, work.held)
    close(work.database, copy)


def postgresql(folder: Path) -> None:
    programs = postgresql_bin()
    if programs is None:
        print("PostgreSQL is not installed.")
        return
    print("PostgreSQL, pg_dump and pg_restore into another server:")
    with postgresql_server(programs) as one, postgresql_server(programs) as other:
        work = begin(one.url)
        run(programs / "pg_dump", one.url, "-Fc", "-f", str(folder / "dump"))
        run(programs / "pg_restore", other.url, str(folder / "dump"))
        copy = tablequeue.connect(other.url)
        tell("before", work.database)
        tell("the copy", copy)
        go_on(copy, work.held)
        close(work.database, copy)


def run(program: Path, url: str, *words: str) -> None:
    at = sa.make_url(url)
    to = ["-h", str(at.host), "-p", str(at.port), "-U", str(at.username), "-d", str(at.database)]
    subprocess.run([program, *to, *words], check=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        sqlite(Path(scratch))
        postgresql(Path(scratch))
