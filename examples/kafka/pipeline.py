"""Orders come from Kafka into a queue, and what is shipped goes from a topic to Kafka: see docs/kafka.md."""

from __future__ import annotations

import os

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tablequeue.spark.pipeline import ForeachBatch, FromSpark, FromTopic, Pipeline, ToQueue, ToTopic

shop = Pipeline("shop")

BROKER = {"kafka.bootstrap.servers": os.environ.get("KAFKA", "127.0.0.1:9092")}


def orders(spark: SparkSession) -> DataFrame:
    log = {"subscribe": "orders", "startingOffsets": "earliest", "maxOffsetsPerTrigger": 10_000}
    return spark.readStream.format("kafka").options(**BROKER, **log).load()


@shop.stage(
    FromSpark(orders),
    ToQueue("orders"),
    expect={"it is JSON": "try_parse_json(payload) is not null"},
    rejects=ToTopic("rejected"),
)
def receive(records: DataFrame) -> DataFrame:
    payload, group = (f.col(name).cast("string") for name in ("value", "key"))
    position = f.to_json(f.struct("topic", "partition", "offset"))
    return records.select(payload.alias("payload"), group.alias("group"), position.alias("headers"))


def to_kafka(records: DataFrame, batch: int) -> None:
    records.write.format("kafka").options(**BROKER, topic="shipped").save()


@shop.stage(FromTopic("shipped", subscription="kafka"), ForeachBatch(to_kafka))
def send(messages: DataFrame) -> DataFrame:
    id = f.struct(f.lit("id").alias("key"), f.encode(f.col("id").cast("string"), "utf-8").alias("value"))
    return messages.select(f.col("group").alias("key"), f.col("payload").alias("value"), f.array(id).alias("headers"))
