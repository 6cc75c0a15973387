"""Lost messages: delivered at most once, and never completed."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f


def lost(messages: DataFrame) -> DataFrame:
    """Return a row for each lost message, the last one first.

    Columns: queue, id, producer, consumer (that popped it), pushed_at, popped_at, error (null if the consumer reported
    none).
    """
    return (
        messages.where("state = 'lost'")
        .select(
            "queue",
            "id",
            "producer",
            "consumer",
            "pushed_at",
            "popped_at",
            f.get("errors", f.size("errors") - 1)["error"].alias("error"),
        )
        .orderBy("queue", f.desc("popped_at"), "id")
    )
