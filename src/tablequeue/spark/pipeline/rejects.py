"""Messages that a stage of a topic rejects. They go to another topic with the reason, in the batch of the stage's rows.

A topic has no dead letters. So a rejected message is a row beside the rows of the stage, in a column of its own: it is
of the same batch, and a batch that is repeated rejects it once.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, StringType

from tablequeue.errors import BadInput
from tablequeue.spark.pipeline.failures import ERROR, UNFITTING
from tablequeue.spark.pipeline.files import column
from tablequeue.spark.pipeline.sinks import Batch, ToTopic
from tablequeue.topic import Topic

REJECTED = "tablequeue_rejected"


def message(rows: DataFrame, stage: str, **headers: Column) -> Column:
    """Return the rejected message of a row: its column payload, or if that is null or missing the row as JSON, with
    headers."""
    kinds = {field.name: field.dataType for field in rows.schema.fields}
    payload = f.to_json(f.struct(*map(column, kinds))).cast("binary")
    if isinstance(kinds.get("payload"), StringType | BinaryType):
        payload = f.coalesce(f.col("payload").cast("binary"), payload)
    named = {"stage": f.lit(stage), **headers} | ({"id": f.col("id")} if "id" in kinds else {})
    told = f.to_json(f.struct(*(value.alias(name) for name, value in named.items())))
    return f.struct(payload.alias("payload"), told.alias("headers"))


def united(rows: DataFrame, unfitting: DataFrame, stage: str) -> DataFrame:
    """Return the rows of a stage with the messages that do not fit their schema beside them, which Spark counts."""
    told = unfitting.select(message(unfitting, stage, reason=f.col(ERROR)).alias(REJECTED))
    counted = told.observe(UNFITTING, f.count(REJECTED).alias("failed"), f.lit(None).cast("bigint").alias("last_id"))
    return rows.unionByName(counted, allowMissingColumns=True)


def split(rows: DataFrame) -> tuple[DataFrame, DataFrame | None]:
    """Return the rows to write, and the rejected messages, if there may be any."""
    if REJECTED not in rows.columns:
        return rows, None
    rejected = rows.where(f.col(REJECTED).isNotNull()).select(f"{REJECTED}.*")
    return rows.where(f.col(REJECTED).isNull()).drop(REJECTED), rejected


def check(source: Topic | None, topic: Topic) -> None:
    """Refuse a topic that cannot hold each payload of the source: not every text is JSON, nor are all bytes text."""
    kinds = ("json", "text", "bytes")
    if source is not None and kinds.index(topic.definition.payload) < kinds.index(source.definition.payload):
        raise BadInput(
            f"The topic {topic.name!r} for rejects takes {topic.definition.payload}, and the payloads of "
            f"{source.name!r} are {source.definition.payload}.",
            f"Reject into a topic with payload={source.definition.payload!r}.",
        )


def write(rejected: DataFrame, topic: ToTopic, batch: Batch) -> None:
    """Push rejected messages, which is once for each batch, as into any topic."""
    if rejected.isEmpty():
        return
    kind = batch.database.topic(topic.topic).definition.payload
    topic.write(rejected.withColumn("payload", f.col("payload").cast("binary" if kind == "bytes" else "string")), batch)
