"""What a stage does with each batch: its rows go to every sink, and the messages that failed are noted in their queue.

Spark calls it in this process. Over Spark Connect it sends a copy to the server, and a process there calls that. So a
writer consists of what can be sent: no connection, no lock, and no password, only the place of the URL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tablequeue.bulk.stream import fail
from tablequeue.spark.options import Options
from tablequeue.spark.pipeline import failures, rejects, rules
from tablequeue.spark.pipeline.sinks import Batch
from tablequeue.spark.pipeline.sources import FromQueue
from tablequeue.spark.pipeline.stages import Stage


class StageWriter:
    """Writes a batch, as Spark's foreachBatch calls it.

    stop   a setting of the session. Once it has a value, no other batch is begun.
    """

    def __init__(self, spark: SparkSession, stage: Stage, options: Mapping[str, str], stop: str) -> None:
        self._spark = spark  # the copy in a server gets the same session there
        self._path = stage.path
        self._queue = stage.source.queue if isinstance(stage.source, FromQueue) else None
        self._sinks = stage.sinks
        self._rejects = stage.rejects
        self._options = options
        self._stop = stop
        self._known: dict[str, Any] = {}

    def __call__(self, rows: DataFrame, number: int) -> None:
        if self._spark.conf.get(self._stop, None):
            raise InterruptedError("the pipeline stops")
        # From Spark: the query can write its first batch before whoever started it knows its id.
        query = next(query.id for query in self._spark.streams.active if query.name == self._path)
        database = Options.of_database(self._options).connect()
        batch = Batch(self._path, query, number, database, self._options, self._known)
        rows.persist()
        try:
            good, rejected = rejects.split(rules.checked(rows))
            if self._queue is not None:
                good, errors = failures.split(good)
                if errors:
                    fail(database.queue(self._queue), self._path, errors)
            for sink in self._sinks:
                sink.write(sink.transform(good) if sink.transform else good, batch)
            if rejected is not None and self._rejects is not None:
                rejects.write(rejected, self._rejects, batch)
        finally:
            rows.unpersist()
