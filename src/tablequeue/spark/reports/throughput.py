"""Throughput: what happened in each second."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

EVENTS = {"pushed": "pushed_at", "popped": "first_popped_at", "finished": "finished_at"}


def throughput(history: DataFrame) -> DataFrame:
    """A row a second in which something happened: second, pushed, popped (first time), finished."""
    events = f.array(*(f.struct(f.lit(name).alias("event"), f.col(at).alias("at")) for name, at in EVENTS.items()))
    return (
        history.select(f.explode(events).alias("e"))
        .where("e.at is not null")
        .groupBy(f.date_trunc("second", "e.at").alias("second"))
        .agg(*(f.count_if(f.col("e.event") == name).alias(name) for name in EVENTS))
        .orderBy("second")
    )
