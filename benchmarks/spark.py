"""Spark beside Spark's own JDBC: reading and writing a million messages, and what a micro-batch costs.

    python -m benchmarks.spark [--messages 1000000] [--repeats 5] [--jdbc /usr/share/java/postgresql.jar]

On PostgreSQL. The JDBC driver is Debian's libpostgresql-jdbc-java. Read: the history, `id` and `payload` of 100 bytes,
two partitions, into nothing. Write: JDBC into a table with the columns and the indexes of a queue, for that is what the
messages of a queue are; and, as another line, into a table without an index, which is no queue. Rounds are interleaved
after one that does not count; ratios are the medians of the rounds' ratios. Every count is checked.
Micro-batches: 10,000 messages each, into nothing, beside Spark's `rate` source; the claim (and the completion of the
batch before) is the part of it that Spark reports as `latestOffset`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import sqlalchemy as sa
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import tablequeue
from benchmarks.places import machine, postgresql_url
from tablequeue.spark.session import local_session

JAR = Path("/usr/share/java/postgresql.jar")
BATCH = 10_000
BATCHES = 10


class Work:
    """A queue with a history of `messages`, and tables beside it for JDBC."""

    def __init__(self, spark: Any, url: str, messages: int) -> None:
        self.spark = spark
        self.url = url
        self.messages = messages
        self.database = tablequeue.connect(url)
        self.read_from = self.database.create_queue("reading", payload="text")
        self.write_to = self.database.create_queue("writing", payload="text")
        parsed = sa.make_url(url)
        self.jdbc = {
            "url": f"jdbc:postgresql://{parsed.host}:{parsed.port}/{parsed.database}?reWriteBatchedInserts=true",
            "user": parsed.username or "",
            "driver": "org.postgresql.Driver",
        }
        self.execute(
            "create function fill(messages bigint) returns void language sql as $$ "
            "insert into tq_reading_history (id, attempts, pushed_at, finished_at, payload) "
            "select n, 1, now(), now(), repeat('x', 100) from generate_series(1, messages) as n $$",
            f"select fill({messages})",
            "create table bare (payload text)",
            "create table indexed (like tq_writing including all)",
            "vacuum analyze tq_reading_history",
        )
        self.frame = spark.range(messages).repartition(2).selectExpr("repeat('x', 100) as payload").cache()
        assert self.frame.count() == messages

    def execute(self, *statements: str) -> int:
        with self.database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for statement in statements:
                result = connection.exec_driver_sql(statement)
            return result.scalar_one() if result.returns_rows else 0

    def ours(self) -> dict[str, str]:
        return {"url": self.url}

    # -- what is timed ---------------------------------------------------------------------------------------------

    def read(self) -> None:
        options = {**self.ours(), "queue": "reading", "partitions": "2", "columns": "id,payload"}
        self.spark.read.format("tablequeue").options(**options).load().write.format("noop").mode("overwrite").save()

    def read_jdbc(self) -> None:
        parts = {"partitionColumn": "id", "lowerBound": "1", "upperBound": str(self.messages), "numPartitions": "2"}
        query = "(select id, payload from tq_reading_history) as reading"
        reader = self.spark.read.format("jdbc").options(**self.jdbc, **parts, dbtable=query, fetchsize="10000")
        reader.load().write.format("noop").mode("overwrite").save()

    def write(self) -> None:
        self.frame.write.format("tablequeue").options(**self.ours(), queue="writing").mode("append").save()

    def write_jdbc(self, table: str) -> None:
        frame = self.frame
        if table == "indexed":
            frame = frame.selectExpr("payload", "current_timestamp() as pushed_at")
        options = {**self.jdbc, "dbtable": table, "batchsize": "10000"}
        frame.write.format("jdbc").options(**options).mode("append").save()

    # -- around it -------------------------------------------------------------------------------------------------

    def timed(self, work: Callable[[], None], table: str | None = None) -> float:
        started = perf_counter()
        work()
        took = perf_counter() - started
        if table is not None:
            assert self.execute(f"select count(*) from {table}") == self.messages  # noqa: S608
            self.execute(f"truncate {table}", "checkpoint")
        return took

    def round(self) -> dict[str, float]:
        return {
            "read": self.timed(self.read),
            "read by JDBC": self.timed(self.read_jdbc),
            "write": self.timed(self.write, "tq_writing"),
            "write by JDBC to such a table": self.timed(lambda: self.write_jdbc("indexed"), "indexed"),
            "write by JDBC, no index": self.timed(lambda: self.write_jdbc("bare"), "bare"),
        }


RATIOS = [
    ("read", "read by JDBC"),
    ("write", "write by JDBC to such a table"),
    ("write", "write by JDBC, no index"),
]


def micro_batches(work: Work, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Spark's own progress reports of full batches, of our source and of its `rate` source."""
    queue = work.database.create_queue("streaming", payload="text")
    queue.push_many(["x" * 100] * (BATCH * (BATCHES + 2)))
    spark = work.spark
    ours = {**work.ours(), "queue": "streaming", "stream": "bench", "maxMessagesPerTrigger": str(BATCH)}
    sources = {
        "tablequeue": spark.readStream.format("tablequeue").options(**ours, columns="id,payload").load(),
        "rate": spark.readStream.format("rate-micro-batch").option("rowsPerBatch", BATCH).load(),
    }
    reports = {}
    for name, frame in sources.items():
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder / name))
        query = writer.start()
        full: list[dict[str, Any]] = []
        while len(full) < BATCHES:
            query.awaitTermination(1)
            full = [one for one in query.recentProgress if one["numInputRows"] == BATCH]
        query.stop()
        reports[name] = full[1:]  # the first finds everything cold
    return reports


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--jdbc", type=Path, default=JAR)
    arguments = parser.parse_args()
    if not arguments.jdbc.exists():
        raise SystemExit(f"There is no JDBC driver at {arguments.jdbc}. Install libpostgresql-jdbc-java, or name it.")
    console = Console()
    with tempfile.TemporaryDirectory(prefix="tablequeue-bench-") as folder, postgresql_url() as url:
        os.environ["PYSPARK_SUBMIT_ARGS"] = (
            f"--driver-class-path {arguments.jdbc} --jars {arguments.jdbc} pyspark-shell"
        )
        spark = local_session("benchmark", Path(folder))
        work = Work(spark, url, arguments.messages)
        rounds: list[dict[str, float]] = []
        with Progress(transient=True) as progress:
            for number in progress.track(range(arguments.repeats + 1), description="rounds"):
                times = work.round()
                if number:
                    rounds.append(times)
        table = Table("what", "seconds", title=f"{machine()}; {arguments.messages:,} messages; medians")
        for name in rounds[0]:
            table.add_row(name, f"{statistics.median(each[name] for each in rounds):.2f}")
        for one, other in RATIOS:
            ratios = [each[other] / each[one] for each in rounds]
            words = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            table.add_row(f"speed: {one} / {other}", words)
        console.print(table)
        reports = micro_batches(work, Path(folder))
        parts = ("triggerExecution", "latestOffset", "queryPlanning", "addBatch", "walCommit", "commitOffsets")
        table = Table("source", *parts, "messages/s", title=f"a micro-batch of {BATCH:,}, in ms; medians")
        for name, full in reports.items():
            middle = [statistics.median(one["durationMs"].get(part, 0) for one in full) for part in parts]
            table.add_row(name, *(f"{value:.0f}" for value in middle), f"{BATCH / middle[0] * 1000:,.0f}")
        console.print(table)
        spark.stop()
        work.database.close()


if __name__ == "__main__":
    main()
