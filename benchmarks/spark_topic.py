"""Spark and a topic: a stream beside a batch read, a write beside JDBC, and the cost of a micro-batch.

A part of `python -m benchmarks.spark`, which has the session and the database.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.results import OURS, Figure
from benchmarks.rounds import interleaved, rate
from tablequeue import Database
from tablequeue.ext import context_of
from tablequeue.verbs import topics

BATCH_READ = "Spark's batch read of the topic"
JDBC_KEYED = "Spark's JDBC, into a table with one index"
CONDITIONS = """The messages of a topic are streamed into Parquet by a query that is started for it and ends, in batches
of 1,000,000 in two parts, as there are two cores; and read into Parquet in batch. They got their offsets before. Of few
messages, most of the time is that of the start. JDBC writes into a table with a primary key."""


class TopicWork:
    """A topic with `messages`; and another one, and a table for JDBC, to which a `frame` is written."""

    def __init__(
        self,
        spark: Any,
        database: Database,
        jdbc: dict[str, str],
        messages: int,
        frame: Any,
        folder: Path,
        aims: tuple[float, float],
    ) -> None:
        self.spark = spark
        self.database = database
        self.place = {"url": str(database.engine.url)}
        self.jdbc = jdbc
        self.messages = messages
        self.folder = folder / f"topic-{messages}"
        self.aims = aims
        """Of the stream, and of the write."""
        self.numbers: Iterator[int] = count()
        self.events = f"events_{messages}"
        self.keyed = f"keyed_{messages}"
        events = database.create_topic(self.events, payload="text")
        self.written = f"written_{messages}"
        self.execute(
            f"create table {self.keyed} (id bigserial primary key, pushed_at timestamptz default now(), payload text)"
        )
        self.frame = frame
        self.rows = frame.count()
        while topics.bounds(context_of(events)).end <= messages:
            frame.write.format("tablequeue").options(**self.place, topic=self.events).mode("append").save()
        found = topics.bounds(context_of(events))
        assert found.end - found.first == messages

    def execute(self, *statements: str) -> None:
        with self.database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    # -- what is timed ---------------------------------------------------------------------------------------------

    def read(self, path: str) -> None:
        self.spark.read.format("tablequeue").options(**self.place, topic=self.events).load().write.parquet(path)

    def stream(self, path: str) -> None:
        options = {**self.place, "topic": self.events, "minPartitions": 2}
        frame = self.spark.readStream.format("tablequeue").options(**options).load()
        writer = frame.writeStream.format("parquet").option("checkpointLocation", f"{path}-checkpoint")
        writer.trigger(availableNow=True).start(path).awaitTermination()

    def write(self) -> None:
        self.frame.write.format("tablequeue").options(**self.place, topic=self.written).mode("append").save()

    def write_jdbc(self) -> None:
        options = {**self.jdbc, "dbtable": self.keyed, "batchsize": "10000"}
        self.frame.write.format("jdbc").options(**options).mode("append").save()

    # -- around it -------------------------------------------------------------------------------------------------

    def into_parquet(self, call: Callable[[str], None]) -> float:
        """Return the messages a second. Each offset must be there once."""
        path = str(self.folder / f"parquet-{next(self.numbers)}")
        found = rate(lambda: call(path), self.messages)
        offsets = self.spark.read.parquet(path).selectExpr("count(*)", "count(distinct offset)").first()
        assert tuple(offsets) == (self.messages, self.messages)
        shutil.rmtree(path)
        self.execute("checkpoint")
        return found

    def into_topic(self) -> float:
        topic = self.database.create_topic(self.written, payload="text")
        found = rate(self.write, self.rows)
        bounds = topics.bounds(context_of(topic))
        assert bounds.end - bounds.first == self.rows
        # As the table of JDBC is emptied: autovacuum would read what the rounds before have written.
        topic.drop()
        self.execute("checkpoint")
        return found

    def into_keyed(self) -> float:
        found = rate(self.write_jdbc, self.rows)
        self.execute(f"truncate {self.keyed}", "checkpoint")
        return found

    def figures(self, repeats: int) -> list[Figure]:
        works = {
            "stream": lambda: self.into_parquet(self.stream),
            "read": lambda: self.into_parquet(self.read),
            "write": self.into_topic,
            "write by JDBC": self.into_keyed,
        }
        found = interleaved(works, repeats, f"rounds of topics of {self.messages:,}")
        of_stream, of_write = self.aims
        stream = f"{self.messages:,} messages of a topic into Parquet"
        write = f"write {self.rows:,} messages into a topic"
        contenders = [
            (stream, OURS, "stream", None),
            (stream, BATCH_READ, "read", of_stream),
            (write, OURS, "write", None),
            (write, JDBC_KEYED, "write by JDBC", of_write),
        ]
        return [Figure("PostgreSQL", what, who, "messages/s", found[name], aim) for what, who, name, aim in contenders]
