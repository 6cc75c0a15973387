"""Kill a pipeline, or what it needs, at random moments, and compare its lakes with the history row by row.

    python -m tests.spark.kills [--engines sqlite,postgresql,mariadb] [--kills 20] [--executors] [--seed 1]
        [--sinks parquet,delta,merge,iceberg,table,upsert,queue,topic]

A stage reads a queue and writes to all sinks, and some of its messages fail. Another one archives the history of the
queue. Each kill is of one of these: the whole job, the driver's Python, its Java, a Python worker, the server of the
database, which also has the catalogue of Iceberg and the tables of the user; with --executors, which makes everything
slower, also an executor. Some come while the job starts. A job that ends is started again. In the end DuckDB, deltalake
and PyIceberg read the lakes. It exits with 1 if a row is missing, is there twice, or is not what the queue had.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import duckdb
import pyarrow as pa
import sqlalchemy as sa
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy.dialects import mysql

import tablequeue
from tablequeue import Database, Queue
from tablequeue.bulk.arrow import columns as columns_of
from tablequeue.bulk.arrow import log_batches
from tablequeue.ext import context_of
from tablequeue.spark.session import quick_python
from tablequeue.verbs import topics
from tests import mariadb
from tests.servers import Server, mariadb_server, postgresql_bin, postgresql_server
from tests.spark.archive import submit_arguments
from tests.spark.killing import QUIET, descendants, kill

ROOT = Path(__file__).parents[2]
PIPELINE = """
from pyspark.sql import functions as f
from tablequeue.spark.pipeline import Archive, FromQueue, Pipeline
from tablequeue.spark.pipeline import ToDelta, ToIceberg, ToParquet, ToQueue, ToTable, ToTopic

numbers = Pipeline("numbers")
sinks = {"parquet": ToParquet("parquet"), "delta": ToDelta("delta"), "iceberg": ToIceberg("lake.numbers", ".")}
sinks |= {"merge": ToDelta("merge", merge_on=["id"])}
sinks |= {"table": ToTable("kept_table"), "upsert": ToTable("kept_upsert", key=["id"])}

def as_messages(rows):
    row = f.array("id", f.get_json_object("payload", "$.n").cast("long"), f.unix_micros("pushed_at"))
    return rows.select(f.to_json(row).alias("payload"))

sinks |= {"queue": ToQueue("kept_queue", as_messages), "topic": ToTopic("kept_topic", as_messages)}

@numbers.stage(FromQueue("raw", 40), *(sinks[name] for name in SINKS))
def keep(messages):
    error = f.when(f.get_json_object("payload", "$.bad") == "true", "bad")
    return messages.select("id", "payload", "pushed_at", error.alias("error"))

numbers.add(Archive("raw", ToDelta("archive"), older_than=0))
"""
# Runs the pipeline, and runs it again when it fails, as a supervisor does, which would start it anew.
JOB = """
import sys
from pathlib import Path
from tablequeue.errors import TablequeueError
from tablequeue.spark.pipeline import run
from tablequeue.spark.pipeline.file import load
from tablequeue.spark.session import session

pipeline = load("pipeline.py")
spark = session("numbers", sys.argv[1], Path("scratch"), lasting=True)
while True:
    try:
        run(pipeline, spark, "checkpoints/numbers", trigger=0.01)
    except TablequeueError as error:
        print(error, flush=True)
"""
SINKS = ("parquet", "delta", "merge", "iceberg", "table", "upsert", "queue", "topic")
MESSAGES = 600
"""Messages that are pushed before each kill: more batches than there is time for."""
PATIENCE = 900.0
"""Seconds within which a job must have written a batch."""
HERE, EXECUTORS = "local[2]", "local-cluster[2,1,1024]"

Row = tuple[int, int, int]
"""The id of a message, its number, and when it was pushed, in microseconds since 1970."""


class Attack:
    """A job that is started again whenever it ends, and what is done to it."""

    def __init__(self, folder: Path, url: str, sinks: Sequence[str], master: str, server: Server | None) -> None:
        self.folder, self.url, self.sinks, self.master, self.server = folder, url, sinks, master, server
        self._python = quick_python(folder)
        (folder / "pipeline.py").write_text(PIPELINE.replace("SINKS", repr(tuple(sinks))))
        self.database: Database = tablequeue.connect(url)
        self.raw: Queue = self.database.create_queue("raw")
        self.tables = {sink: made(self.database, f"kept_{sink}", sink == "upsert") for sink in ("table", "upsert")}
        self.queue, self.topic = self.database.create_queue("kept_queue"), self.database.create_topic("kept_topic")
        self.pushed: dict[int, int] = {}
        """The number of each message, by its id."""
        self.kills: Counter[str] = Counter()
        self.ends: Counter[int] = Counter()
        self.starts = 0
        self._job: subprocess.Popen[bytes] | None = None
        self._begun = 0.0

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        self.starts += 1
        environment = {**os.environ, "TABLEQUEUE_URL": self.url, "PYSPARK_PYTHON": self._python}
        environment |= {"PYTHONPATH": str(ROOT), "SPARK_WORKER_DIR": str(self.folder), "SPARK_LOCAL_IP": "127.0.0.1"}
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *command],
                cwd=self.folder,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def job(self) -> subprocess.Popen[bytes]:
        """The job, started again if it has ended."""
        if self._job is not None and self._job.poll() is not None:
            self.ends[self._job.returncode] += 1
            kill(self._job.pid)
            self._job = None
        if self._job is None:
            self._job = self.start("-c", JOB, self.master)
        return self._job

    def left(self) -> int:
        stats = self.raw.stats()
        return stats.ready + stats.in_progress

    def goes_on(self) -> None:
        """Wait until the job, or one after it, has written a batch."""
        before, until = self.left(), monotonic() + PATIENCE
        while self.left() == before:
            assert self.job.pid
            assert monotonic() < until, f"nothing was written in {PATIENCE:g} seconds: {self.log()}"
            sleep(0.05)

    def push(self) -> None:
        first = len(self.pushed)
        numbers = range(first, first + MESSAGES - self.raw.stats().ready)
        ids = self.raw.push_many({"n": n, "text": "é" * (n % 9), "bad": n % 50 == 7} for n in numbers)
        self.pushed |= dict(zip(ids, numbers, strict=True))

    def strike(self) -> None:
        self.push()
        while self._job is not None and self._job.poll() is None and random.random() < 0.8:
            self.goes_on()
            break
        else:
            assert self.job.pid
            sleep(random.uniform(0, 12))  # while it starts
        sleep(random.uniform(0, 1))
        ways: list[Callable[[], bool]] = [self.whole_job, self.python, self.java, *[self.worker] * 4]
        ways += [self.executor] * 2 if self.master == EXECUTORS else []
        if self.server:
            ways += [self.database_server] * 6
        way = random.choice(ways)
        if way():
            self.kills[way.__name__] += 1
            print(f"{self.kills.total()}: {way.__name__}, {self.left()} messages left", file=sys.stderr, flush=True)

    def whole_job(self) -> bool:
        job = self.job
        kill(job.pid)
        job.wait()
        return True

    def python(self) -> bool:
        job = self.job
        job.kill()
        job.wait()
        return True

    def java(self) -> bool:
        return self._one_of(b"org.apache.spark.deploy.SparkSubmit")

    def executor(self) -> bool:
        return self._one_of(b"CoarseGrainedExecutorBackend")

    def worker(self) -> bool:
        return self._one_of(b"tablequeue.spark.daemon")

    def database_server(self) -> bool:
        assert self.server
        self.server.kill()
        sleep(random.uniform(0, 1))
        self.server.start()
        return True

    def _one_of(self, words: bytes) -> bool:
        """Kill a process of the job whose command line has these words."""
        found = []
        for process in descendants(self.job.pid):
            try:
                if words in Path(f"/proc/{process}/cmdline").read_bytes():
                    found.append(process)
            except OSError:
                continue
        if found:
            os.kill(random.choice(found), signal.SIGKILL)
        return bool(found)

    def end(self) -> None:
        """Let a job finish all that is there."""
        if self._job is not None:
            kill(self._job.pid)
            self._job.wait()
        last = self.start("-m", "tablequeue", "pipeline", "run", "pipeline.py", "--available-now")
        assert last.wait(PATIENCE) == 0, self.log()

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    # -- what is there in the end --------------------------------------------------------------------------------------

    def faults(self) -> list[str]:
        rows = [
            *self._archive(),
            *((each.id, each.payload["n"], micros(each.pushed_at)) for each in self.raw.history(10**7)),
        ]
        ended, bad = {*rows}, {each.id for each in self.raw.dead(10**7)}
        found = [f"{count} messages are {state}" for state, count in self._left().items()]
        if bad != {id for id, n in self.pushed.items() if n % 50 == 7}:
            found.append("the dead letters are not the messages that fail")
        if {(id, n) for id, n, _ in rows} != {(id, n) for id, n in self.pushed.items() if id not in bad}:
            found.append("the archive and the history do not have the other messages")
        if len(rows) != len(ended):
            found.append("the archive has messages again")
        for sink in self.sinks:
            there = Counter(getattr(self, f"_{sink}")())
            twice = sum(there.values()) - len(there)
            for words, wrong in {"not in the history": {*there} - ended, "missing": ended - {*there}}.items():
                found += [f"{sink}: {len(wrong)} rows are {words}, such as {min(wrong)}"] if wrong else []
            found += [f"{sink}: {twice} rows are there again"] if twice else []
        return found

    def _left(self) -> dict[str, int]:
        stats = self.raw.stats()
        left = {"ready": stats.ready, "in progress": stats.in_progress}
        return {state: count for state, count in left.items() if count}

    def _rows(self, table: Any) -> Iterator[Row]:
        """The rows of an Arrow table, or of files, by DuckDB."""
        with duckdb.connect() as duck:
            duck.execute("set timezone = 'UTC'")
            if isinstance(table, pa.Table):
                duck.register("found", table)
            else:
                duck.execute(f"create view found as from read_parquet({[str(path) for path in table]!r})")
            query = "select id, cast(payload ->> '$.n' as bigint), epoch_us(pushed_at) from found"
            yield from duck.execute(query).fetchall()

    def _parquet(self) -> Iterator[Row]:
        return self._rows([*(self.folder / "parquet").glob("batch=*/*.parquet")])

    def _archive(self) -> Iterator[Row]:
        return self._rows(DeltaTable(self.folder / "archive").to_pyarrow_table())

    def _delta(self) -> Iterator[Row]:
        return self._rows(DeltaTable(self.folder / "delta").to_pyarrow_table())

    def _merge(self) -> Iterator[Row]:
        return self._rows(DeltaTable(self.folder / "merge").to_pyarrow_table())

    def _iceberg(self) -> Iterator[Row]:
        catalogue = SqlCatalog("tablequeue", uri=self.url)
        try:
            return self._rows(catalogue.load_table("lake.numbers").scan().to_arrow())
        finally:
            catalogue.close()

    def _table(self) -> Iterator[Row]:
        return self._of("table")

    def _upsert(self) -> Iterator[Row]:
        return self._of("upsert")

    def _queue(self) -> Iterator[Row]:
        return (tuple(message.payload) for message in self.queue.peek(10**7))

    def _topic(self) -> Iterator[Row]:
        first, end = topics.bounds(context_of(self.topic))
        wanted = pa.schema([columns_of(self.topic, "log").field("payload")])
        for batch in log_batches(self.topic, first, end, wanted):
            yield from (tuple(json.loads(payload)) for payload in batch["payload"].to_pylist())

    def _of(self, sink: str) -> Iterator[Row]:
        self.database.engine.dispose()  # its connections were to servers that are gone
        with self.database.engine.connect() as connection:
            for id, payload, pushed_at in connection.execute(sa.select(self.tables[sink])):
                yield (
                    id,
                    json.loads(payload)["n"],
                    micros(pushed_at if pushed_at.tzinfo else pushed_at.replace(tzinfo=UTC)),
                )


def made(database: Database, name: str, keyed: bool) -> sa.Table:
    """A table of the user. Without a key it takes a row again."""
    times = {"mariadb": mysql.DATETIME(fsp=6), "postgresql": sa.DateTime(timezone=True)}
    id = sa.Column("id", sa.BigInteger, primary_key=keyed, autoincrement=False)
    pushed_at = sa.Column("pushed_at", times.get(database.engine.dialect.name, sa.DateTime()))
    table = sa.Table(name, sa.MetaData(), id, sa.Column("payload", sa.Text), pushed_at, mariadb_charset="utf8mb4")
    table.create(database.engine)
    return table


def micros(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def run(url: str, server: Server | None, sinks: Sequence[str], master: str, kills: int) -> tuple[str, list[str]]:
    with tempfile.TemporaryDirectory(prefix="tablequeue-kills-") as folder:
        attack = Attack(Path(folder), url, sinks, master, server)
        try:
            while attack.kills.total() < kills:
                attack.strike()
            attack.end()
            faults = attack.faults()
        finally:
            if attack._job is not None:
                kill(attack._job.pid)
            attack.database.close()
        killed = ", ".join(f"{count} of {way}" for way, count in attack.kills.items())
        return (
            f"{attack.kills.total()} kills ({killed}), {attack.starts} starts, {len(attack.pushed)} messages, in "
            f"{', '.join(sinks)}; the jobs ended with {dict(attack.ends)}"
        ), faults


@contextmanager
def sqlite() -> Iterator[tuple[str, None]]:
    with tempfile.TemporaryDirectory(prefix="tablequeue-kills-") as folder:
        yield f"sqlite:///{folder}/queues.db", None


@contextmanager
def postgresql() -> Iterator[tuple[str, Server]]:
    programs = postgresql_bin()
    assert programs, "PostgreSQL is not installed: run `make servers`"
    with postgresql_server(programs) as server:
        yield server.url, server


@contextmanager
def of_mariadb() -> Iterator[tuple[str, Server]]:
    programs = mariadb.programs()
    assert programs, "MariaDB is not installed: run `make servers`"
    with mariadb_server(*programs) as server:
        yield server.url, server


PLACES: dict[str, Any] = {"sqlite": sqlite, "postgresql": postgresql, "mariadb": of_mariadb}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default=",".join(PLACES))
    parser.add_argument("--sinks", default=",".join(SINKS))
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--executors", dest="master", action="store_const", const=EXECUTORS, default=HERE)
    parser.add_argument("--seed", type=int, default=random.randrange(1000))
    arguments = parser.parse_args()
    settings = " ".join(f"--conf '{name}={value}'" for name, value in QUIET.items())
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"{settings} {submit_arguments()}"
    wrong = 0
    for engine in arguments.engines.split(","):
        random.seed(arguments.seed)
        with PLACES[engine]() as (url, server):
            words, faults = run(url, server, arguments.sinks.split(","), arguments.master, arguments.kills)
        print(f"{engine}, seed {arguments.seed}: {words}; {len(faults)} faults", *faults, sep="\n  ", flush=True)
        wrong += len(faults)
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
