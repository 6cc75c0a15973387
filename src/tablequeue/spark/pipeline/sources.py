"""Where a stage reads: a queue, or any other source that Spark can stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class FromQueue:
    """Reads the messages of a queue, with the stream `pipeline/stage`.

    max_messages_per_trigger   maximum number of messages in a batch. `ToDelta` has a batch in the driver's memory.
    """

    queue: str
    max_messages_per_trigger: int = 10_000

    def load(self, spark: SparkSession, database: Mapping[str, str], stream: str) -> DataFrame:
        options = {"queue": self.queue, "stream": stream, "maxMessagesPerTrigger": self.max_messages_per_trigger}
        return spark.readStream.format("tablequeue").options(**database, **options).load()


@dataclass(frozen=True, slots=True)
class FromSpark:
    """Reads any streaming DataFrame that a function of the session returns: `FromSpark(lambda spark: ...)`."""

    function: Callable[[SparkSession], DataFrame]

    def load(self, spark: SparkSession, database: Mapping[str, str], stream: str) -> DataFrame:
        return self.function(spark)


Source = FromQueue | FromSpark
