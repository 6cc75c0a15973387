"""Backlog over time: what was pushed and not finished yet."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f


def backlog(throughput: DataFrame) -> DataFrame:
    """From `throughput`, the backlog at the end of each of its rows.

    Columns: queue, at, backlog (pushed; not finished, dead or lost), waiting (pushed and never popped). Of the
    messages that are known: what was purged from the queue was never there.
    """
    so_far = Window.partitionBy("queue").orderBy("at")
    return throughput.select(
        "queue",
        "at",
        f.sum(f.expr("pushed - finished - dead - lost")).over(so_far).alias("backlog"),
        f.sum(f.expr("pushed - popped")).over(so_far).alias("waiting"),
    ).orderBy("queue", "at")
