"""Wait and run times: how long messages waited for a consumer, and how long the consumer took.

Percentiles come from KLL sketches of a few kilobytes each, however many messages they represent. Sketches of hours can
be merged for any longer time, so percentiles of a year do not need its messages.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from tablequeue.spark.reports.messages import seconds_between

SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}

# The size parameter of a sketch. 800 means 20 kB for a busy hour; the default of 200 would confuse p98 and p99.
_SIZE = 800
RANK_ERROR = 0.0035
"""The maximum error of the rank of a percentile, with a probability of 99 %."""


def sketches(messages: DataFrame, *by: str) -> DataFrame:
    """Return sketches of the times of finished messages: a row for each hour, and each value of the columns `by`.

    Columns: queue, by, hour (in which the time ended), time (`wait`: pushed to first popped; `run`: last popped to
    finished), messages, seconds (their sum), longest, sketch.
    """
    spans = {"wait": ("pushed_at", "first_popped_at"), "run": ("popped_at", "finished_at")}
    measured = f.array(
        *(
            f.struct(
                f.lit(time).alias("time"),
                f.date_trunc("hour", end).alias("hour"),
                seconds_between(start, end).alias("seconds"),
            )
            for time, (start, end) in spans.items()
        )
    )
    return (
        messages.where("state = 'finished'")
        .select("queue", *by, f.inline(measured))
        .where("seconds is not null")
        .groupBy("queue", *by, "hour", "time")
        .agg(
            f.count("*").alias("messages"),
            f.sum("seconds").alias("total"),
            f.max("seconds").alias("longest"),
            f.kll_sketch_agg_double("seconds", _SIZE).alias("sketch"),
        )
        .withColumnRenamed("total", "seconds")
    )


def times(sketches: DataFrame, *by: str) -> DataFrame:
    """Return percentiles of merged sketches: a row for each `time`, and each value of the columns `by`.

    Columns: by (such as queue, hour), time, messages, mean, p50, p95, p99, max. Times are seconds, and percentiles are
    exact within RANK_ERROR.
    """
    return (
        sketches.groupBy(*by, "time")
        .agg(
            f.sum("messages").alias("messages"),
            (f.sum("seconds") / f.sum("messages")).alias("mean"),
            f.kll_merge_agg_double("sketch").alias("sketch"),
            f.max("longest").alias("max"),
        )
        .select(*by, "time", "messages", "mean", *percentiles("sketch"), "max")
        .orderBy(*by, f.desc("time"))
    )


def percentiles(sketch: str) -> list[Column]:
    return [f.kll_sketch_get_quantile_double(sketch, f.lit(share)).alias(name) for name, share in SHARES.items()]
