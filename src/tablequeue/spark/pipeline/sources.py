"""Where a stage reads: a queue, a topic, or any other source that Spark can stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import StructType

from tablequeue.spark.options import Position
from tablequeue.spark.pipeline import failures


@dataclass(frozen=True, slots=True)
class FromQueue:
    """Reads the messages of a queue, with the stream `pipeline/stage`.

    max_messages_per_trigger   maximum number of messages in a batch.
    schema                     fields of the payloads, which are then columns: DDL, or a StructType. A message that does
                               not fit becomes a dead letter.
    """

    queue: str
    max_messages_per_trigger: int = 10_000
    schema: str | StructType | None = None

    def load(self, spark: SparkSession, database: Mapping[str, str], stream: str) -> DataFrame:
        options = {"queue": self.queue, "stream": stream, "maxMessagesPerTrigger": self.max_messages_per_trigger}
        return self.fitting(spark.readStream.format("tablequeue").options(**database, **options))

    def fitting(self, reader: DataStreamReader | DataFrameReader, columns: Sequence[str] = "*") -> DataFrame:
        """Return the messages whose payloads fit the schema. Spark counts the others, as those that fail later."""
        if self.schema is None:
            return reader.options(columns=",".join(columns)).load()
        read = reader.options(**typed(self.schema), columns=",".join([*columns, failures.ERROR]))
        return failures.separated(failures.observed(read.load(), failures.UNFITTING))[0]


@dataclass(frozen=True, slots=True)
class FromTopic:
    """Reads the messages of a topic, from the offset that the checkpoint has.

    subscription               name of a subscription, in which the position is noted after each batch.
    starting_position          where a new checkpoint begins: `beginning`, `end`, an offset, or an aware time. None: at
                               the position of the subscription; at the beginning, if there is no subscription.
    max_messages_per_trigger   maximum number of messages in a batch.
    ending_position            where a new checkpoint ends, as `replay` uses it: `end` is where the topic ends now.
    schema                     fields of the payloads, as for a queue. A message that does not fit goes to the `rejects`
                               of the stage; without these it stops the stage.
    """

    topic: str
    subscription: str | None = None
    starting_position: Position | None = None
    max_messages_per_trigger: int = 100_000
    ending_position: Position | None = None
    schema: str | StructType | None = None

    def load(
        self, spark: SparkSession, database: Mapping[str, str], stream: str, columns: str | None = None
    ) -> DataFrame:
        start, end = self.starting_position, self.ending_position
        given = {
            "topic": self.topic,
            "subscription": self.subscription,
            "startingPosition": start.isoformat() if isinstance(start, datetime) else start,
            "endingPosition": end.isoformat() if isinstance(end, datetime) else end,
            "maxMessagesPerTrigger": self.max_messages_per_trigger,
            # On this machine the number of cores: each task that writes a file takes 0.08 s of a core.
            "minPartitions": spark.conf.get("spark.default.parallelism", None),
            "columns": columns,
            **({} if self.schema is None else typed(self.schema)),
        }
        options = {name: value for name, value in given.items() if value is not None}
        return spark.readStream.format("tablequeue").options(**database, **options).load()


@dataclass(frozen=True, slots=True)
class FromSpark:
    """Reads any streaming DataFrame that a function of the session returns: `FromSpark(lambda spark: ...)`."""

    function: Callable[[SparkSession], DataFrame]

    def load(self, spark: SparkSession, database: Mapping[str, str], stream: str) -> DataFrame:
        return self.function(spark)


def typed(schema: str | StructType) -> dict[str, str]:
    """Return the option of the data source for a schema of payloads."""
    return {"payloadSchema": schema if isinstance(schema, str) else schema.json()}


Source = FromQueue | FromTopic | FromSpark
