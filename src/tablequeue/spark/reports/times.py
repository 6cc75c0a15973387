"""Wait and run times: how long messages waited for a reader, and how long the reader took."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def seconds_between(start: str, end: str) -> Column:
    return (f.unix_micros(end) - f.unix_micros(start)) / f.lit(1e6)


def times(history: DataFrame) -> DataFrame:
    """A row for `wait` (pushed to first popped) and one for `run` (last popped to finished).

    Columns: time, messages, mean, p50, p95, p99, max; in seconds, percentiles exact.
    """
    measured = history.select(
        f.explode(
            f.create_map(
                f.lit("wait"),
                seconds_between("pushed_at", "first_popped_at"),
                f.lit("run"),
                seconds_between("popped_at", "finished_at"),
            )
        ).alias("time", "seconds")
    ).where("seconds is not null")
    percentiles = f.percentile("seconds", list(SHARES.values()))
    return (
        measured.groupBy("time")
        .agg(
            f.count("*").alias("messages"),
            f.mean("seconds").alias("mean"),
            percentiles.alias("shares"),
            f.max("seconds").alias("max"),
        )
        .select("time", "messages", "mean", *(f.col("shares")[i].alias(name) for i, name in enumerate(SHARES)), "max")
        .orderBy(f.desc("time"))
    )
