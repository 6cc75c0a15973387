"""Throughput: the number of events in each interval."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tablequeue.spark.reports.messages import ENDS, bucket, events

EVENTS = ("pushed", "popped", "failed", *ENDS)


def throughput(messages: DataFrame, every: int = 1) -> DataFrame:
    """Return a row for each interval of `every` seconds with events.

    Columns: queue, at (their beginning), pushed, popped (first time), failed (attempts), finished, cancelled, expired,
    dead, lost, unpopped (cancelled or expired, and never popped).
    """
    event = f.col("event")
    unpopped = event.isin("cancelled", "expired") & f.col("name").isNull()
    return (
        events(messages)
        .groupBy("queue", bucket("at", every).alias("at"))
        .agg(*(f.count_if(event == one).alias(one) for one in EVENTS), f.count_if(unpopped).alias("unpopped"))
        .orderBy("queue", "at")
    )
