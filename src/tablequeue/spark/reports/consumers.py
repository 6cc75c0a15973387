"""Arrivals and consumers: how fast messages arrived, how fast a consumer is, and how many would have been enough.

The model is a queue with one line and c equal consumers, each working on one message at a time. Message by message it
replays the hour: each message becomes ready when it did, and takes a consumer for as long as it did. A consumer takes
the message that has been ready longest, and each hour begins with an empty queue. So the model answers for the messages
of that hour. It leaves out what the hours before left over, what failed attempts cost, and that more consumers may slow
each other down.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from heapq import heapreplace

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from tablequeue.spark.reports.messages import seconds_between

SHARE = 0.95
"""The share of the messages that should not wait longer than the target."""

# Spark requires exactly these Arrow types.
_WHOLE, _REAL, _TIME = (pa.int64(), "bigint"), (pa.float64(), "double"), (pa.timestamp("us", "UTC"), "timestamp")
_COLUMNS = {
    "queue": (pa.string(), "string"),
    "hour": _TIME,
    "arrivals": _WHOLE,
    "arrival_rate": _REAL,
    "service_rate": _REAL,
    "consumers": _WHOLE,
    "wait_p95": _REAL,
    "needed": _WHOLE,
    "needed_wait_p95": _REAL,
}


def consumers(messages: DataFrame, target: float) -> DataFrame:
    """Return a row for each hour of each queue in which messages arrived that have been finished.

    Columns: queue, hour, arrivals, arrival_rate (a second, between the first and the last), service_rate (messages a
    second that one consumer finishes), consumers (that finished them), wait_p95 (95th percentile of the seconds from
    ready to popped), needed (the fewest consumers with which it would have been at most `target`, by the model above),
    needed_wait_p95 (the percentile with so many).
    """
    # The run times of messages of one claim overlap: each is taken to need an equal share of the claim's time.
    claim = Window.partitionBy("queue", "consumer", "popped_at")
    served = seconds_between(f.col("popped_at"), f.max("finished_at").over(claim)) / f.count("*").over(claim)
    # The due time of a retried message is that of its last attempt, so its first arrival is taken to be its push.
    arrived = f.when(f.col("attempts") == 1, f.greatest("pushed_at", "due_at")).otherwise(f.col("pushed_at"))
    return (
        messages.where("state = 'finished' and popped_at is not null")
        .withColumns({"arrived_at": arrived, "service": served})
        .select(
            "queue",
            f.date_trunc("hour", "arrived_at").alias("hour"),
            "consumer",
            seconds_between(f.date_trunc("hour", "arrived_at"), f.col("arrived_at")).alias("arrived"),
            f.greatest(f.lit(0.0), seconds_between("arrived_at", "first_popped_at")).alias("wait"),
            "service",
        )
        .groupBy("queue", "hour")
        .applyInArrow(
            lambda hour: _hour(hour, target), ", ".join(f"{name} {kind}" for name, (_, kind) in _COLUMNS.items())
        )
        .orderBy("queue", "hour")
    )


def _hour(hour: pa.Table, target: float) -> pa.Table:
    hour = hour.sort_by("arrived")
    arrived, service, waited = (hour[name].to_pylist() for name in ("arrived", "service", "wait"))
    span, served = arrived[-1] - arrived[0], sum(service)
    enough = needed(arrived, service, target)
    row = (
        hour["queue"][0].as_py(),
        hour["hour"][0].as_py(),
        len(arrived),
        len(arrived) / span if span else None,
        len(arrived) / served if served else None,
        len(set(hour["consumer"].to_pylist())),
        percentile(waited),
        enough,
        percentile(list(waits(arrived, service, enough))),
    )
    columns = [pa.array([value], kind) for value, (kind, _) in zip(row, _COLUMNS.values(), strict=True)]
    return pa.table(columns, [*_COLUMNS])


def needed(arrived: Sequence[float], service: Sequence[float], target: float) -> int:
    """Return the least number of consumers with which SHARE of the messages wait at most `target` seconds.

    `arrived` is sorted.
    """

    def kept(consumers: int) -> bool:
        # Counted instead of sorted, to stop early when there are far too few consumers.
        spare = len(arrived) - math.ceil(SHARE * len(arrived))
        for wait in waits(arrived, service, consumers):
            spare -= wait > target
            if spare < 0:
                return False
        return True

    # With one more consumer no message waits longer. So double until they are enough, then search by bisection.
    low, high = 0, 1
    while not kept(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if kept(middle) else (middle, high)
    return high


def waits(arrived: Sequence[float], service: Sequence[float], consumers: int) -> Iterator[float]:
    """Yield how long each message waits for one of so many consumers, in the order of arrival."""
    free = [-math.inf] * consumers  # a heap of the times at which each consumer is free
    for at, seconds in zip(arrived, service, strict=True):
        start = max(at, free[0])
        heapreplace(free, start + seconds)
        yield start - at


def percentile(values: Sequence[float]) -> float:
    """Return the least value that at least SHARE of the values do not exceed."""
    return sorted(values)[math.ceil(SHARE * len(values)) - 1]
