"""Arrivals and consumers: how fast messages came, how fast a consumer is, and how many would have been enough.

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
"""The share of the messages whose wait the target is for."""

# Spark insists on exactly these Arrow types.
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
    """A row for each hour of each queue in which messages came that have been finished.

    Columns: queue, hour, arrivals, arrival_rate (a second, between the first and the last), service_rate (messages a
    second that one consumer finishes), consumers (consumers that finished them), wait_p95 (seconds that 95 % of them
    waited at most, once they were ready), needed (the fewest consumers with which that would have been `target` seconds
    at most, by the model above), needed_wait_p95 (the wait with so many).
    """
    # One claim may bring many messages, and their run times overlap: a share of the claim's time is what each took.
    claim = Window.partitionBy("queue", "consumer", "popped_at")
    served = seconds_between(f.col("popped_at"), f.max("finished_at").over(claim)) / f.count("*").over(claim)
    # A retried message's due time is that of its last attempt: when it came first is known from the push alone.
    came = f.when(f.col("attempts") == 1, f.greatest("pushed_at", "due_at")).otherwise(f.col("pushed_at"))
    return (
        messages.where("state = 'finished' and popped_at is not null")
        .withColumns({"came_at": came, "service": served})
        .select(
            "queue",
            f.date_trunc("hour", "came_at").alias("hour"),
            "consumer",
            seconds_between(f.date_trunc("hour", "came_at"), f.col("came_at")).alias("came"),
            f.greatest(f.lit(0.0), seconds_between("came_at", "first_popped_at")).alias("wait"),
            "service",
        )
        .groupBy("queue", "hour")
        .applyInArrow(
            lambda hour: _hour(hour, target), ", ".join(f"{name} {kind}" for name, (_, kind) in _COLUMNS.items())
        )
        .orderBy("queue", "hour")
    )


def _hour(hour: pa.Table, target: float) -> pa.Table:
    hour = hour.sort_by("came")
    came, service, waited = (hour[name].to_pylist() for name in ("came", "service", "wait"))
    span, served = came[-1] - came[0], sum(service)
    enough = needed(came, service, target)
    row = (
        hour["queue"][0].as_py(),
        hour["hour"][0].as_py(),
        len(came),
        len(came) / span if span else None,
        len(came) / served if served else None,
        len(set(hour["consumer"].to_pylist())),
        percentile(waited),
        enough,
        percentile(list(waits(came, service, enough))),
    )
    columns = [pa.array([value], kind) for value, (kind, _) in zip(row, _COLUMNS.values(), strict=True)]
    return pa.table(columns, [*_COLUMNS])


def needed(came: Sequence[float], service: Sequence[float], target: float) -> int:
    """The fewest consumers with which SHARE of the messages wait `target` seconds at most; `came` in order."""

    def kept(consumers: int) -> bool:
        # Counted, and not sorted: hopeless numbers of consumers are given up early.
        spare = len(came) - math.ceil(SHARE * len(came))
        for wait in waits(came, service, consumers):
            spare -= wait > target
            if spare < 0:
                return False
        return True

    # One more consumer never lets any message wait longer: double until it is enough, then halve what is between.
    low, high = 0, 1
    while not kept(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if kept(middle) else (middle, high)
    return high


def waits(came: Sequence[float], service: Sequence[float], consumers: int) -> Iterator[float]:
    """How long each message waits for one of so many consumers, in the order in which they came."""
    free = [-math.inf] * consumers  # a heap: when each consumer is free
    for at, seconds in zip(came, service, strict=True):
        start = max(at, free[0])
        heapreplace(free, start + seconds)
        yield start - at


def percentile(values: Sequence[float]) -> float:
    """The least of the values that SHARE of them are not above."""
    return sorted(values)[math.ceil(SHARE * len(values)) - 1]
