"""Throughput: the number of events in each interval."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tablequeue.spark.reports.messages import bucket, events

EVENTS = ("pushed", "popped", "finished", "failed", "dead", "lost")


def throughput(messages: DataFrame, every: int = 1) -> DataFrame:
    """Return a row for each interval of `every` seconds with events.

    Columns: queue, at (their beginning), pushed, popped (first time), finished, failed (attempts), dead, lost.
    """
    return (
        events(messages)
        .groupBy("queue", bucket("at", every).alias("at"))
        .agg(*(f.count_if(f.col("event") == event).alias(event) for event in EVENTS))
        .orderBy("queue", "at")
    )
