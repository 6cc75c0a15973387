"""Killed at every point and at any moment, a Spark job takes each message once from queue to sink.

The job has streams out of SQLite and out of PostgreSQL, into queues and into files, and dies as a whole: driver, JVM
and workers, by SIGKILL.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pyarrow.dataset
import pytest

from tablequeue import Database
from tests.servers import KINDS
from tests.spark.killing import BATCH, POINTS, kill

ENGINES = [kind for kind in KINDS if kind.name in ("sqlite", "postgresql")]
SOURCES = ("to_queue", "to_files")
# Starting Spark again takes longer than all else, so there are few here.
KILLS = int(os.environ.get("TABLEQUEUE_TEST_KILLS", 2))
# A slot for each of four streams, and as many more; and executors with processes and memories of their own.
LOCAL = "local[8]"
CLUSTER = "local-cluster[2,2,1024]"


class Job:
    """The job of killing.py, and the databases of its queues."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.databases: dict[str, Database] = {}

    def start(self, point: str, master: str = LOCAL) -> subprocess.Popen[bytes]:
        for marker in self.folder.glob("*.reached"):
            marker.unlink()
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.spark.killing", str(self.folder), point, master],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            )

    def run(self, point: str, master: str = LOCAL) -> int:
        """The exit code."""
        running = self.start(point, master)
        try:
            return running.wait(timeout=300)
        finally:
            kill(running.pid)

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-5000:]

    def push(self, start: int, number: int) -> None:
        for database in self.databases.values():
            for name in SOURCES:
                database.queue(name).push_many(str(n) for n in range(start, start + number))

    def done(self) -> int:
        """How many messages have come to the queues at the end."""
        return sum(database.queue("out").stats().ready for database in self.databases.values())

    def check_each_once(self, number: int) -> None:
        expected = sorted(map(str, range(number)))
        for engine, database in self.databases.items():
            for name in SOURCES:
                queue = database.queue(name)
                assert sorted(message.payload for message in queue.history(2 * number)) == expected, (engine, name)
                stats = queue.stats()
                assert (stats.ready, stats.in_progress, stats.dead) == (0, 0, 0)
            assert sorted(message.payload for message in database.queue("out").peek(2 * number)) == expected, engine
            assert sorted(self._rows(engine)) == expected, engine

    def _rows(self, engine: str) -> list[str]:
        """The payloads in the files, as Spark reads them: of those that the sink's own log names."""
        files = set()
        for log in (self.folder / engine / "_spark_metadata").glob("[0-9]*"):
            files |= {json.loads(line)["path"].removeprefix("file://") for line in log.read_text().splitlines()[1:]}
        rows: list[str] = pyarrow.dataset.dataset(sorted(files)).to_table().column("payload").to_pylist()
        return rows


@pytest.fixture
def job(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Job]:
    job = Job(tmp_path / "job")
    job.folder.mkdir()
    places = []
    for kind in ENGINES:
        schema = f"test_{secrets.token_hex(8)}" if kind.has_schemas else None
        place = kind.place(kind.url(request), schema)
        places.append((kind, place))
        (job.folder / f"{kind.name}.url").write_text(place.url)
        (job.folder / f"{kind.name}.json").write_text(json.dumps({"schema": schema} if schema else {}))
        job.databases[kind.name] = place.open()
        for name in (*SOURCES, "out"):
            job.databases[kind.name].create_queue(name, payload="text")
    yield job
    for kind, place in places:
        if place.schema and kind.drop_schema:
            place.execute(kind.drop_schema.format(place.schema))
        place.close()


@pytest.mark.timeout(1200)
def test_killed_at_every_point(job: Job) -> None:
    number = 2 * BATCH * len(POINTS)
    job.push(0, number)
    for point in POINTS:
        assert job.run(point) == -signal.SIGKILL, f"not reached: {point}\n{job.log()}"
    assert job.run("end") == 0, job.log()
    job.check_each_once(number)


@pytest.mark.timeout(300 + 60 * KILLS)
def test_killed_at_any_moment(job: Job) -> None:
    random.seed(7)
    ended, number = Event(), 0

    def produce() -> None:
        nonlocal number
        while not ended.wait(0.2):
            job.push(number, 2)
            number += 2

    producer = Thread(target=produce)
    producer.start()
    try:
        for _ in range(KILLS):
            running = job.start("never")
            try:
                seen = job.done()
                while job.done() == seen:
                    assert running.poll() is None, job.log()
                    ended.wait(0.05)
                ended.wait(random.uniform(0, 2))
            finally:
                kill(running.pid)
                running.wait()
    finally:
        ended.set()
        producer.join()
    assert job.run("end") == 0, job.log()
    job.check_each_once(number)


@pytest.mark.timeout(600)
def test_executors_share_nothing_with_the_driver(job: Job) -> None:
    number = 3 * BATCH
    job.push(0, number)
    assert job.run("end", CLUSTER) == 0, job.log()
    job.check_each_once(number)
