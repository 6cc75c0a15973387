"""Killed at every point and at any moment, a Spark job takes each message once from queue to sink."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread

import pyarrow.dataset
import pytest

from tablequeue import Database
from tests.servers import KINDS, Kind, Place
from tests.spark.killing import BATCH, POINTS, kill

SOURCES = ("to_queue", "to_files")
# Random kills on each engine; starting Spark again takes longer than all else.
KILLS = int(os.environ.get("TABLEQUEUE_TEST_KILLS", 10))


@pytest.fixture(params=[kind for kind in KINDS if kind.name in ("sqlite", "postgresql")], ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    one: Kind = request.param
    return one


# On one machine in one process; and on two executors with a process and a memory of their own.
LOCAL = "local[2]"
CLUSTER = "local-cluster[2,1,1024]"


class Job:
    """The job of killing.py."""

    master = LOCAL

    def __init__(self, folder: Path, place: Place) -> None:
        self.folder = folder
        (folder / "url").write_text(place.url)
        (folder / "place").write_text(json.dumps({"schema": place.schema} if place.schema else {}))

    def start(self, point: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.spark.killing", str(self.folder), point, self.master],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            )

    def run(self, point: str) -> int:
        """The exit code."""
        return self.start(point).wait(timeout=240)

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-5000:]


@pytest.fixture
def job(tmp_path: Path, place: Place, db: Database) -> Job:
    for name in (*SOURCES, "out"):
        db.create_queue(name, payload="text")
    return Job(tmp_path, place)


def push(db: Database, start: int, number: int) -> None:
    for name in SOURCES:
        db.queue(name).push_many(str(n) for n in range(start, start + number))


def check_each_once(db: Database, job: Job, number: int) -> None:
    expected = sorted(map(str, range(number)))
    for name in SOURCES:
        queue = db.queue(name)
        assert sorted(message.payload for message in queue.history(2 * number)) == expected, name
        stats = queue.stats()
        assert (stats.ready, stats.in_progress, stats.dead) == (0, 0, 0)
    assert sorted(message.payload for message in db.queue("out").peek(2 * number)) == expected
    # As Spark reads it: the files that the sink's own log names.
    log = {}
    for file in sorted((job.folder / "files" / "_spark_metadata").glob("[0-9]*")):
        for line in file.read_text().splitlines()[1:]:
            entry = json.loads(line)
            log[entry["path"]] = entry
    files = [path.removeprefix("file://") for path in log]
    rows = pyarrow.dataset.dataset(files, format="parquet").to_table().column("payload").to_pylist()
    assert sorted(rows) == expected


@pytest.mark.timeout(1200)
def test_killed_at_every_point(db: Database, job: Job, kind: Kind) -> None:
    job.master = CLUSTER if kind.side_by_side else LOCAL
    number = 2 * BATCH * len(POINTS)
    push(db, 0, number)
    for point in POINTS:
        assert job.run(point) == -signal.SIGKILL, f"not reached: {point}\n{job.log()}"
    assert job.run("end") == 0, job.log()
    check_each_once(db, job, number)


@pytest.mark.timeout(1200)
def test_killed_at_any_moment(db: Database, job: Job) -> None:
    random.seed(7)
    done, number = Event(), 0

    def produce() -> None:
        nonlocal number
        while not done.wait(0.1):
            push(db, number, 3)
            number += 3

    producer = Thread(target=produce)
    producer.start()
    try:
        for _ in range(KILLS):
            running = job.start("never")
            try:
                seen = db.queue("out").stats().ready
                while db.queue("out").stats().ready == seen:
                    assert running.poll() is None, job.log()
                    done.wait(0.05)
                done.wait(random.uniform(0, 1.5))
            finally:
                kill(running.pid)
                running.wait()
    finally:
        done.set()
        producer.join()
    assert job.run("end") == 0, job.log()
    check_each_once(db, job, number)
