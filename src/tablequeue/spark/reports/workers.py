"""The work of every writer and every reader, side by side."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from tablequeue.spark.reports.times import seconds_between


def workers(history: DataFrame) -> DataFrame:
    """A row for each producer and each consumer.

    Columns: role (`producer` or `consumer`), name, messages, share (of its role's), first_at, last_at (of its
    pushes, or finishes), per_second (between these two; null for a single moment), retried (messages that it
    finished after another attempt had not; null for producers), run_p50 (seconds; null for producers).
    """
    retried, run = f.count_if(f.col("attempts") > 1), f.median(seconds_between("popped_at", "finished_at"))
    none = f.lit(None)
    producers = _work(history, "producer", "pushed_at", none.cast("bigint"), none.cast("double"))
    consumers = _work(history, "consumer", "finished_at", retried, run)
    whole = Window.partitionBy("role")
    return (
        producers.unionByName(consumers)
        .withColumn("share", f.col("messages") / f.sum("messages").over(whole))
        .withColumn("per_second", f.try_divide("messages", seconds_between("first_at", "last_at")))
        .select("role", "name", "messages", "share", "first_at", "last_at", "per_second", "retried", "run_p50")
        .orderBy(f.desc("role"), "name")
    )


def _work(history: DataFrame, role: str, at: str, retried: Column, run: Column) -> DataFrame:
    return (
        history.groupBy(f.col(role).alias("name"))
        .agg(
            f.count("*").alias("messages"),
            f.min(at).alias("first_at"),
            f.max(at).alias("last_at"),
            retried.alias("retried"),
            run.alias("run_p50"),
        )
        .withColumn("role", f.lit(role))
    )
