"""Compare with Spark's own sources: reads, writes (a million messages in a full run), and the cost of a micro-batch.

    python -m benchmarks.spark [--full] [--repeats 5] [--jdbc /usr/share/java/postgresql.jar]

Runs on PostgreSQL, with a queue and a topic. The JDBC driver is Debian's libpostgresql-jdbc-java. Every count is
checked. The cost of a micro-batch comes from Spark's own progress reports, in which `latestOffset` is the claim
together with the completion of the batch before.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from rich.console import Console
from rich.table import Table

import tablequeue
from benchmarks.options import REPEATS
from benchmarks.places import postgresql_url
from benchmarks.results import OURS, Figure, save
from benchmarks.rounds import interleaved, rate
from benchmarks.spark_topic import CONDITIONS as TOPIC_CONDITIONS
from benchmarks.spark_topic import TopicWork
from tablequeue.spark.session import local_session

JAR = Path("/usr/share/java/postgresql.jar")
MESSAGES, FULL = 200_000, 1_000_000
FULL_STREAM = 5_000_000
BATCH = 10_000
BATCHES = 20
JDBC = "Spark's JDBC"
RATE = "Spark's rate source"
TOPIC = "tablequeue, a topic"
FILTER = "tablequeue, and Spark's filter"
QUERY = "Spark's JDBC, of a query for them"
# Of a read by an option.
KEPT = 1000
# Of a batch of a stream that is to be fast, not prompt.
LARGE_BATCH = 100_000
CONDITIONS = """Two cores for Spark and the server; payloads of 100 bytes. A read loads `id` and `payload` of a history
in two partitions, and discards them. JDBC writes into a table with the columns and the indexes of a queue, which a
queue needs, and for comparison into a table without indexes. A micro-batch has 10,000 messages, which are discarded.
One message in a thousand is read by the options `minId` and `maxId`, or `since` and `until`; or all of them, by Spark's
filter of the same column: [filters are not pushed down](adr/0069-filters-are-options.md). JDBC reads it by a query with
that condition: that is mostly the start of a read in Spark."""


class Work:
    """A queue with a history of `messages`, and tables for JDBC."""

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
            "create function fill(first bigint, last bigint) returns void language sql as $$ "
            "insert into tq_reading_history (id, attempts, pushed_at, finished_at, payload) "
            "select n, 1, now(), timestamptz '2026-01-01 00:00Z' + n * interval '1 second', repeat('x', 100) "
            "from generate_series(first, last) as n $$",
            "create table bare (payload text)",
            "create table indexed (like tq_writing including all)",
        )
        self.fill(1, messages)
        self.frame = spark.range(messages).repartition(2).selectExpr("repeat('x', 100) as payload").cache()
        assert self.frame.count() == messages

    def execute(self, *statements: str) -> int:
        with self.database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for statement in statements:
                result = connection.exec_driver_sql(statement)
            return result.scalar_one() if result.returns_rows else 0

    def fill(self, first: int, last: int) -> None:
        self.execute(f"select fill({first}, {last})", "vacuum analyze tq_reading_history")

    def ours(self) -> dict[str, str]:
        return {"url": self.url}

    # -- what is timed ---------------------------------------------------------------------------------------------

    def read(self, condition: str = "true", columns: str = "id,payload", **options: Any) -> None:
        options = {**self.ours(), "queue": "reading", "partitions": "2", "columns": columns, **options}
        frame = self.spark.read.format("tablequeue").options(**options).load().filter(condition)
        frame.write.format("noop").mode("overwrite").save()

    def read_jdbc(self) -> None:
        parts = {"partitionColumn": "id", "lowerBound": "1", "upperBound": str(self.messages), "numPartitions": "2"}
        self.read_query(**parts)

    def read_query(self, condition: str = "true", columns: str = "id,payload", **parts: str) -> None:
        query = f"(select {columns} from tq_reading_history where {condition}) as reading"  # noqa: S608
        options = {**self.jdbc, **parts, "dbtable": query, "fetchsize": "10000"}
        self.spark.read.format("jdbc").options(**options).load().write.format("noop").mode("overwrite").save()

    def write(self) -> None:
        self.frame.write.format("tablequeue").options(**self.ours(), queue="writing").mode("append").save()

    def write_jdbc(self, table: str) -> None:
        frame = self.frame
        if table == "indexed":
            frame = frame.selectExpr("payload", "current_timestamp() as pushed_at")
        options = {**self.jdbc, "dbtable": table, "batchsize": "10000"}
        frame.write.format("jdbc").options(**options).mode("append").save()

    # -- around it -------------------------------------------------------------------------------------------------

    def timed(self, call: Callable[[], None], table: str | None = None) -> float:
        """Return the messages a second. A table that was written to is checked and emptied."""
        found = rate(call, self.messages)
        if table is not None:
            assert self.execute(f"select count(*) from {table}") == self.messages  # noqa: S608
            self.execute(f"truncate {table}", "checkpoint")
        return found

    def few(self, messages: int, repeats: int) -> list[Figure]:
        """Return figures of reads of few messages, in the middle of a history of so many."""
        low = messages // 2
        high = low + messages // KEPT - 1
        first = datetime(2026, 1, 1, tzinfo=UTC)
        since, until = ((first + timedelta(seconds=n)).isoformat() for n in (low, high + 1))
        of_ids, of_times = f"id between {low} and {high}", f"finished_at >= '{since}' and finished_at < '{until}'"
        of_time = {"columns": "finished_at,payload"}
        works: dict[str, Callable[[], None]] = {
            "by id": lambda: self.read(minId=low, maxId=high),
            "by id, filter": lambda: self.read(of_ids),
            "by id, JDBC": lambda: self.read_query(of_ids),
            "by time": lambda: self.read(**of_time, since=since, until=until),
            "by time, filter": lambda: self.read(of_times, **of_time),
            "by time, JDBC": lambda: self.read_query(of_times, **of_time),
        }
        timed = {name: lambda work=work: 1000 / rate(work, 1) for name, work in works.items()}
        found = interleaved(timed, repeats, f"rounds of few of {messages:,} messages")
        figures = []
        for name in ("by id", "by time"):
            what = f"read 1 in {KEPT:,} of {messages:,} messages, {name}"
            figures.append(Figure("PostgreSQL", what, OURS, "ms", found[name]))
            figures.append(Figure("PostgreSQL", what, FILTER, "ms", found[f"{name}, filter"], 20))
            figures.append(Figure("PostgreSQL", what, QUERY, "ms", found[f"{name}, JDBC"]))
        return figures

    def batches(self, repeats: int) -> list[Figure]:
        works = {
            "read": lambda: self.timed(self.read),
            "read by JDBC": lambda: self.timed(self.read_jdbc),
            "write": lambda: self.timed(self.write, "tq_writing"),
            "write by JDBC": lambda: self.timed(lambda: self.write_jdbc("indexed"), "indexed"),
            "write by JDBC, no index": lambda: self.timed(lambda: self.write_jdbc("bare"), "bare"),
        }
        found = interleaved(works, repeats, "rounds")
        read, write = f"read {self.messages:,} messages", f"write {self.messages:,} messages"
        contenders = [
            (read, OURS, "read", None),
            (read, JDBC, "read by JDBC", 0.95),
            (write, OURS, "write", None),
            (write, f"{JDBC}, into such a table", "write by JDBC", 1.5),
            (write, f"{JDBC}, into a table without an index", "write by JDBC, no index", None),
        ]
        return [Figure("PostgreSQL", what, who, "messages/s", found[name], aim) for what, who, name, aim in contenders]


def micro_batches(work: Work, folder: Path) -> list[Figure]:
    """Return figures from Spark's own reports of full batches, for a queue, a topic, and Spark's `rate` source."""
    queue = work.database.create_queue("streaming", payload="text")
    topic = work.database.create_topic("streamed", payload="text")
    for _ in range(BATCHES + 2):
        queue.push_many(["x" * 100] * BATCH)
        topic.push_many(["x" * 100] * BATCH)
    spark = work.spark
    ours = {**work.ours(), "queue": "streaming", "stream": "bench", "maxMessagesPerTrigger": str(BATCH)}
    sources = {
        OURS: spark.readStream.format("tablequeue").options(**ours, columns="id,payload").load(),
        TOPIC: spark.readStream.format("tablequeue")
        .options(**work.ours(), topic="streamed", maxMessagesPerTrigger=BATCH, columns="id,payload")
        .load(),
        RATE: spark.readStream.format("rate-micro-batch").option("rowsPerBatch", BATCH).load(),
    }
    spark.sparkContext.setLogLevel("OFF")  # a query that is stopped logs errors about its last batch
    took: dict[str, list[dict[str, float]]] = {}
    for name, frame in sources.items():
        query = frame.writeStream.format("noop").option("checkpointLocation", str(folder / name)).start()
        full: list[Any] = []
        while len(full) < BATCHES:
            query.awaitTermination(1)
            full = [one for one in query.recentProgress if one["numInputRows"] == BATCH]
        query.stop()
        took[name] = [one["durationMs"] for one in full[1:BATCHES]]  # the first one is a warm-up
    show(took)
    whole = {name: [one["triggerExecution"] for one in each] for name, each in took.items()}
    besides = [one["triggerExecution"] - one["latestOffset"] for one in took[OURS]]
    more = [mine - theirs for mine, theirs in zip(besides, whole[RATE], strict=True)]
    of_topic = [mine - theirs for mine, theirs in zip(whole[TOPIC], whole[RATE], strict=True)]
    what = f"a micro-batch of {BATCH:,} messages"
    return [
        Figure("PostgreSQL", what, OURS, "ms", whole[OURS], aim=170),
        Figure("PostgreSQL", what, TOPIC, "ms", whole[TOPIC]),
        Figure("PostgreSQL", what, RATE, "ms", whole[RATE]),
        Figure("PostgreSQL", f"{what}, more than {RATE}, without the claim", OURS, "ms", more, aim=150),
        Figure("PostgreSQL", f"{what} of a topic, more than {RATE}", OURS, "ms", of_topic, aim=40),
        Figure("PostgreSQL", "messages of a stream", OURS, "messages/s", [BATCH / each * 1000 for each in whole[OURS]]),
    ]


def large_batches(work: Work, folder: Path, repeats: int) -> list[Figure]:
    """Return the rate of a stream of a queue in large batches, from Spark's own reports."""
    queue = work.database.create_queue("large", payload="text")
    for _ in range(repeats + 1):
        queue.push_many(["x" * 100] * LARGE_BATCH)
    options = {**work.ours(), "queue": "large", "stream": "bench", "maxMessagesPerTrigger": str(LARGE_BATCH)}
    frame = work.spark.readStream.format("tablequeue").options(**options, columns="id,payload").load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(folder / "large"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    took = [one["durationMs"]["triggerExecution"] for one in query.recentProgress if one["numInputRows"] == LARGE_BATCH]
    assert len(took) == repeats + 1
    what = f"messages of a stream, {LARGE_BATCH:,} in a batch"
    rates = [LARGE_BATCH / each * 1000 for each in took[1:]]  # the first one is a warm-up
    return [Figure("PostgreSQL", what, OURS, "messages/s", rates, aim=100_000)]


def show(took: dict[str, list[dict[str, float]]]) -> None:
    """Print how the time of a micro-batch is spent."""
    parts = ("triggerExecution", "latestOffset", "queryPlanning", "addBatch", "walCommit", "commitOffsets")
    table = Table("source", *parts, title=f"a micro-batch of {BATCH:,}, in ms; medians")
    for name, each in took.items():
        table.add_row(name, *(f"{statistics.median(one.get(part, 0) for one in each):.0f}" for part in parts))
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--full", action="store_true", help="as much as the page is about, whose figures it replaces")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--jdbc", type=Path, default=JAR)
    parser.add_argument("--topics", action="store_true", help="without the reads and writes of queues; nothing is kept")
    arguments = parser.parse_args()
    if not arguments.jdbc.exists():
        raise SystemExit(f"There is no JDBC driver at {arguments.jdbc}. Install libpostgresql-jdbc-java, or name it.")
    with tempfile.TemporaryDirectory(prefix="tablequeue-bench-") as folder, postgresql_url() as url:
        os.environ["PYSPARK_SUBMIT_ARGS"] = (
            f"--driver-class-path {arguments.jdbc} --jars {arguments.jdbc} pyspark-shell"
        )
        spark = local_session("benchmark", Path(folder), lasting=True)
        work = Work(spark, url, FULL if arguments.full else MESSAGES)
        repeats = arguments.repeats
        figures = [] if arguments.topics else work.batches(repeats) + work.few(work.messages, repeats)
        topics = [(MESSAGES, work.frame.limit(MESSAGES).repartition(2).cache(), (0.5, 0.9))]
        if arguments.full:
            topics.append((FULL_STREAM, work.frame, (0.85, 1.2)))
            work.fill(work.messages + 1, FULL_STREAM)
            figures += work.few(FULL_STREAM, repeats)
        for messages, frame, aims in topics:
            topic = TopicWork(spark, work.database, work.jdbc, messages, frame, Path(folder), aims)
            figures += topic.figures(repeats)
        figures += micro_batches(work, Path(folder)) + large_batches(work, Path(folder), repeats)
        spark.stop()
        work.database.close()
    conditions = f"{CONDITIONS} {TOPIC_CONDITIONS}".replace("\n", " ")
    keep = arguments.full and not arguments.topics
    save("spark", "Spark: batches and micro-batches", conditions, figures, keep=keep)


if __name__ == "__main__":
    main()
