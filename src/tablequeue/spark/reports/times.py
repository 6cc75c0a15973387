"""Wait and run times: how long messages waited for a consumer, and how long the consumer took."""

from __future__ import annotations

from tablequeue.spark.reports.messages import bucket, seconds_between

SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}

_SIZE = 10_000
RANK_ERROR, EXACT = 1 / _SIZE, _SIZE // 2
"""The maximum error of the rank of a percentile of Spark, and the number of values up to which there is none."""


def times(every: int) -> str:
    """Return the wait and run times of finished messages, for the tables of their percentiles.

    Columns: queue, time (`wait`: pushed to first popped; `run`: last popped to finished), at (the beginning of the
    interval of `every` seconds in which that time ended), seconds.
    """
    return " union all ".join(
        f"""
        select queue, '{time}' as time, {bucket(end, every)} as "at", {seconds_between(start, end)} as seconds
        from messages where state = 'finished' and {start} is not null and {end} is not null
        """
        for time, start, end in (("wait", "pushed_at", "first_popped_at"), ("run", "popped_at", "finished_at"))
    )


def percentiles(*by: str) -> str:
    """Return percentiles of the table `times`: a row for each `time`, and each value of the columns `by`.

    Columns: by (such as queue, at), time, messages, mean, p50, p95, p99, max. Times are seconds, and percentiles are
    exact (but see RANK_ERROR): each is the least value that at least so many do not exceed.
    """
    columns = ", ".join(f'"{name}"' for name in by)
    return f"""
        select {columns}, time, count(*) as messages, avg(seconds) as mean,
            {", ".join(f"{percentile('seconds', share)} as {name}" for name, share in SHARES.items())},
            max(seconds) as max
        from times group by {columns}, time order by {columns}, time desc
    """


def percentile(value: str, share: float) -> str:
    return f"percentile_approx({value}, {share}, {_SIZE})"
