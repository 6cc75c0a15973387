"""The totals of each queue."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tablequeue.spark.reports.messages import ENDS


def overview(messages: DataFrame) -> DataFrame:
    """Return a row for each queue.

    Columns: queue, messages, finished, retried (of these, after another attempt had failed), backlog (pushed, and not
    ended), in_progress (of these), cancelled, expired, dead, lost, producers, consumers, first_at (the first push),
    last_at (the last push, pop or end).
    """
    state = f.col("state")
    return (
        messages.groupBy("queue")
        .agg(
            f.count("*").alias("messages"),
            f.count_if(state == "finished").alias("finished"),
            f.count_if((state == "finished") & (f.col("attempts") > 1)).alias("retried"),
            f.count_if(~state.isin(*ENDS)).alias("backlog"),
            *(f.count_if(state == name).alias(name) for name in ("in_progress", *ENDS[1:])),
            f.count_distinct("producer").alias("producers"),
            f.count_distinct("consumer").alias("consumers"),
            f.min("pushed_at").alias("first_at"),
            f.max(f.greatest("pushed_at", "popped_at", "finished_at")).alias("last_at"),
        )
        .orderBy("queue")
    )
