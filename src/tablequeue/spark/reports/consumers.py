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

from tablequeue.spark.reports.messages import seconds_between

SHARE = 0.95
"""The share of the messages that should not wait longer than the target."""

# Spark requires exactly these Arrow types.
COLUMNS = {
    "queue": pa.string(),
    "hour": pa.timestamp("us", "UTC"),
    "arrivals": pa.int64(),
    "arrival_rate": pa.float64(),
    "service_rate": pa.float64(),
    "consumers": pa.int64(),
    "wait_p95": pa.float64(),
    "needed": pa.int64(),
    "needed_wait_p95": pa.float64(),
}

# The due time of a retried message is that of its last attempt, so its arrival is taken to be its push. The run times
# of messages of one claim overlap: each is taken to need an equal share of the claim's time.
_SERVED = "state = 'finished' and popped_at is not null"
_CLAIM = f"over (partition by queue, consumer, popped_at, {_SERVED})"
ARRIVALS = f"""
    select queue, date_trunc('hour', arrived_at) as hour, id, consumer,
        {seconds_between("date_trunc('hour', arrived_at)", "arrived_at")} as arrived,
        case when first_popped_at is not null
            then greatest(0e0, {seconds_between("arrived_at", "first_popped_at")}) end as wait,
        service
    from (
        select queue, id, consumer, first_popped_at,
            case when due_at > first_popped_at then pushed_at else greatest(pushed_at, due_at) end as arrived_at,
            case when {_SERVED}
                then {seconds_between("popped_at", f"max(finished_at) {_CLAIM}")} / count(*) {_CLAIM} end as service
        from messages where state <> 'scheduled' or first_popped_at is not null
    ) as arrived
"""
"""When each message arrived, how long it waited (null: it was not popped), and how long it took a consumer (null: it is
not finished); in seconds. A message that was never due has not arrived."""


def consumers(hour: pa.Table, target: float) -> pa.Table:
    """Return the row of an hour of a queue, of which `hour` has the ARRIVALS.

    Columns: queue, hour, arrivals, arrival_rate (a second, between the first and the last), service_rate (messages a
    second that one consumer finishes), consumers (that finished them), wait_p95 (95th percentile of the seconds from
    ready to popped), needed (the fewest consumers with which it would have been at most `target`, by the model above),
    needed_wait_p95 (the percentile with so many). A message that is not finished is taken to need the mean time of the
    others; if none is finished, what depends on that time is null.
    """
    hour = hour.sort_by([("arrived", "ascending"), ("id", "ascending")])
    arrived, service, waited = (hour[name].to_pylist() for name in ("arrived", "service", "wait"))
    known = [seconds for seconds in service if seconds is not None]
    popped = [seconds for seconds in waited if seconds is not None]
    span, served = arrived[-1] - arrived[0], sum(known)
    enough = model = None
    if known:
        filled = [served / len(known) if seconds is None else seconds for seconds in service]
        enough = needed(arrived, filled, target)
        model = percentile(list(waits(arrived, filled, enough)))
    at_work = {name for name, took in zip(hour["consumer"].to_pylist(), service, strict=True) if took is not None}
    row = (
        hour["queue"][0].as_py(),
        hour["hour"][0].as_py(),
        len(arrived),
        len(arrived) / span if span else None,
        len(known) / served if served else None,
        len(at_work),
        percentile(popped) if popped else None,
        enough,
        model,
    )
    columns = [pa.array([value], kind) for value, kind in zip(row, COLUMNS.values(), strict=True)]
    return pa.table(columns, [*COLUMNS])


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
