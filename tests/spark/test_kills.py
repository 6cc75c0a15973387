"""Killed at every point and at any moment, a Spark job takes each message once from a queue, or a topic, to each sink.

The job has streams out of SQLite and out of PostgreSQL, into queues, topics and files, and dies as a whole: driver, JVM
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
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tablequeue import Database
from tablequeue.bulk.arrow import columns as columns_of
from tablequeue.bulk.arrow import log_batches
from tablequeue.ext import context_of
from tablequeue.topic import Topic
from tablequeue.verbs import topics
from tests.nightly import by_night
from tests.servers import KINDS
from tests.spark import killing
from tests.spark.killing import BATCH, POINTS, files, kill

pytestmark = pytest.mark.usefixtures("quick_java")

ENGINES = [kind for kind in KINDS if kind.name in ("sqlite", "postgresql")]
# Starting Spark takes longer than all else: every stream dies in the same death, at a point of its own.
ALL = tuple(POINTS)
# By day on PostgreSQL alone: with the streams of both engines, twice as many start.
DAY = ([kind for kind in ENGINES if kind.name == "postgresql"], ALL)
# One into files and one into a queue; and likewise of a topic.
SOME = ("in a read", "after a publication", "after_an_offset", "after_a_publication_in_a_topic")
KILLS = int(os.environ.get("TABLEQUEUE_TEST_KILLS", 0))
# A slot for each stream; and executors with processes and memories of their own, one slot each: all of Spark's
# processes start at once, and on two busy cores Python workers that start side by side miss Spark's ten seconds.
LOCAL = "local[16]"
CLUSTER = "local-cluster[2,1,1024]"


class Job:
    """The job of killing.py, and the databases of its queues."""

    def __init__(self, folder: Path, streams: Sequence[str]) -> None:
        self.folder = folder
        self.streams = streams
        self.databases: dict[str, Database] = {}

    def start(self, how: str, master: str = LOCAL) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.spark.killing", str(self.folder), how, master, *self.streams],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            )

    def run(self, how: str, master: str = LOCAL) -> int:
        """The exit code."""
        running = self.start(how, master)
        try:
            return running.wait(timeout=900)
        finally:
            kill(running.pid)

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-5000:]

    def push(self, start: int, number: int) -> None:
        for database in self.databases.values():
            for place in (database.queue("work"), database.topic("events")):
                place.push_many(str(n) for n in range(start, start + number))

    def done(self) -> int:
        """How many messages have come to the queues at the end."""
        return sum(database.queue("out").stats().ready for database in self.databases.values())

    def check_each_once(self, number: int) -> None:
        """In the history, and in one of the sinks."""
        expected = sorted(map(str, range(number)))
        for engine, database in self.databases.items():
            queue = database.queue("work")
            assert sorted(message.payload for message in queue.history(2 * number)) == expected, engine
            stats = queue.stats()
            assert (stats.ready, stats.in_progress, stats.dead) == (0, 0, 0)
            out = [message.payload for message in database.queue("out").peek(2 * number)]
            assert sorted(out + self._rows(engine, "queue")) == expected, engine
            self._check_topic(engine, database.topic("events"), database.topic("copies"), expected)

    def _check_topic(self, engine: str, events: Topic, copies: Topic, expected: list[str]) -> None:
        """Each stream of the topic has all messages, and its subscription knows."""
        first, end = topics.bounds(context_of(copies))
        columns = columns_of(copies, "log")
        wanted = pa.schema([columns.field(name) for name in ("payload", "producer")])
        copied = [row for batch in log_batches(copies, first, end, wanted) for row in batch.to_pylist()]
        for stream in self.streams:
            kind, leads_to = POINTS[stream]
            if kind == "topic":
                of_stream = [row["payload"] for row in copied if row["producer"] == stream]
                found = of_stream if leads_to == "topic" else self._rows(engine, "topic")
                assert sorted(found) == expected, f"{engine}, {stream}"
                assert events.subscription(stream).lag().messages == 0

    def _rows(self, engine: str, kind: str) -> list[str]:
        """The payloads in the files, as Spark reads them: of those that the sink's own log names."""
        names = set()
        for log in (files(self.folder / f"{engine}.url", kind) / "_spark_metadata").glob("[0-9]*"):
            names |= {json.loads(line)["path"].removeprefix("file://") for line in log.read_text().splitlines()[1:]}
        return [payload for name in names for payload in pq.read_table(name)["payload"].to_pylist()]


@pytest.fixture
def job(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Job]:
    kinds, streams = request.param
    job = Job(tmp_path / "job", streams)
    job.folder.mkdir()
    places = []
    for kind in kinds:
        schema = f"test_{secrets.token_hex(8)}" if kind.has_schemas else None
        place = kind.place(kind.url(request), schema)
        places.append((kind, place))
        (job.folder / f"{kind.name}.url").write_text(place.url)
        (job.folder / f"{kind.name}.json").write_text(json.dumps({"schema": schema} if schema else {}))
        job.databases[kind.name] = place.open()
        database = job.databases[kind.name]
        for name in ("work", "out"):
            database.create_queue(name, payload="text")
        events = database.create_topic("events", payload="text")
        database.create_topic("copies", payload="text")
        for stream in streams:
            if POINTS[stream][0] == "topic":
                events.subscribe(stream)
    yield job
    for kind, place in places:
        if place.schema and kind.drop_schema:
            place.execute(kind.drop_schema.format(place.schema))
        place.close()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("job", by_night([[*DAY], [ENGINES, ALL]], [*DAY].__eq__), ids=["one", "both"], indirect=True)
def test_killed_at_every_point(spark: Any, job: Job) -> None:
    """The session that goes on is that of the other tests, and shares neither a process nor memory with the job."""
    number = 3 * BATCH * len(ALL)
    job.push(0, number)
    assert job.run("points") == -signal.SIGKILL, job.log()
    killing.run(spark, job.folder, "end", job.streams)
    job.check_each_once(number)


@pytest.mark.skipif(not KILLS, reason="each kill is a start of Spark: TABLEQUEUE_TEST_KILLS says how many")
@pytest.mark.timeout(1200 + 120 * KILLS)
@pytest.mark.parametrize("job", [(ENGINES, SOME)], indirect=True)
def test_killed_at_any_moment(job: Job) -> None:
    """The executors that end it share neither files nor memory with the driver that died."""
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
    assert job.run("end", CLUSTER) == 0, job.log()
    job.check_each_once(number)
