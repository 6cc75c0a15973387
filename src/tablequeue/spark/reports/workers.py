"""The work of every producer and every consumer."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from tablequeue.spark.reports.messages import EXPIRED, seconds_between


def workers(messages: DataFrame) -> DataFrame:
    """Return a row for each producer and each consumer of each queue.

    Columns: queue, role (`producer` or `consumer`), name, messages (pushed, or finished), share (of all messages of
    that role), first_at, last_at (the first and the last of these), per_second (between these two; null if they are
    equal). For consumers also: retried (messages that it finished after a failed attempt), failures (its failed
    attempts), expired (failures by an expired lease: the consumer died or was too slow, and the message was delivered
    again), run_p50 and run_p95 (seconds; the ranks are exact within 0.1 %).
    """
    finished = f.col("state") == "finished"
    work = f.concat(
        f.array(
            _work("producer", f.col("producer"), at=f.col("pushed_at")),
            _work(
                "consumer",
                f.col("consumer"),
                at=f.when(finished, f.col("finished_at")),
                retried=finished & (f.col("attempts") > 1),
                run=f.when(finished, seconds_between("popped_at", "finished_at")),
            ),
        ),
        f.transform("errors", lambda error: _work("consumer", error["consumer"], error=error["error"])),
    )
    run = f.percentile_approx("run", [0.5, 0.95], 1000)
    mine = f.col("role") == "consumer"
    return (
        messages.select("queue", f.inline(work))
        .where("at is not null or error is not null")
        .groupBy("queue", "role", "name")
        .agg(
            f.count("at").alias("messages"),
            f.min("at").alias("first_at"),
            f.max("at").alias("last_at"),
            f.when(mine, f.count_if("retried")).alias("retried"),
            f.when(mine, f.count("error")).alias("failures"),
            f.when(mine, f.count_if(f.col("error") == EXPIRED)).alias("expired"),
            run[0].alias("run_p50"),
            run[1].alias("run_p95"),
        )
        .withColumn("share", f.try_divide("messages", f.sum("messages").over(Window.partitionBy("queue", "role"))))
        .withColumn("per_second", f.try_divide("messages", seconds_between("first_at", "last_at")))
        .select(
            *"queue role name messages share first_at last_at per_second retried failures expired".split(),
            *("run_p50", "run_p95"),
        )
        .orderBy("queue", f.desc("role"), "name")
    )


def _work(
    role: str,
    name: Column,
    at: Column | None = None,
    retried: Column | None = None,
    run: Column | None = None,
    error: Column | None = None,
) -> Column:
    """Return the share of one producer or consumer in one message."""
    none = f.lit(None)
    return f.struct(
        f.lit(role).alias("role"),
        name.alias("name"),
        (none.cast("timestamp") if at is None else at).alias("at"),
        (none.cast("boolean") if retried is None else retried).alias("retried"),
        (none.cast("double") if run is None else run).alias("run"),
        (none.cast("string") if error is None else error).alias("error"),
    )
