"""Backlog over time: messages that were pushed and have not ended."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f


def backlog(throughput: DataFrame) -> DataFrame:
    """Return the backlog at the end of each row of `throughput`.

    Columns: queue, at, backlog (pushed, and not ended), waiting (of these, never popped). Messages that were purged
    from the queue are not known, and not counted.
    """
    so_far = Window.partitionBy("queue").orderBy("at")
    return throughput.select(
        "queue",
        "at",
        f.sum(f.expr("pushed - finished - cancelled - expired - dead - lost")).over(so_far).alias("backlog"),
        f.sum(f.expr("pushed - popped - unpopped")).over(so_far).alias("waiting"),
    ).orderBy("queue", "at")
