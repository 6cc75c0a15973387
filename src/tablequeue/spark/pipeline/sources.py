"""Where a stage reads: a queue, or whatever else Spark can stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class FromQueue:
    """The messages of a queue, by a stream with the name `pipeline/stage`.

    max_messages_per_trigger   how many messages a batch has at the most. `ToDelta` has as many in the driver's memory.
    """

    queue: str
    max_messages_per_trigger: int = 10_000

    def load(self, spark: SparkSession, database: Mapping[str, str], stream: str) -> DataFrame:
        options = {"queue": self.queue, "stream": stream, "maxMessagesPerTrigger": self.max_messages_per_trigger}
        return spark.readStream.format("tablequeue").options(**database, **options).load()


@dataclass(frozen=True, slots=True)
class FromSpark:
    """Any streaming DataFrame, made by a function of the session: `FromSpark(lambda spark: spark.readStream...)`."""

    function: Callable[[SparkSession], DataFrame]

    def load(self, spark: SparkSession, database: Mapping[str, str], stream: str) -> DataFrame:
        return self.function(spark)


Source = FromQueue | FromSpark
