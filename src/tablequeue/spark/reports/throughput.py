"""Throughput: the number of events in each interval."""

from __future__ import annotations

from tablequeue.spark.reports.messages import ENDS, EVENTS, bucket

_COUNTED = ", ".join(
    f"count(*) filter (where event = '{event}') as {event}" for event in ("pushed", "popped", "failed", *ENDS)
)


def throughput(every: int = 1) -> str:
    """Return a row for each interval of `every` seconds with events.

    Columns: queue, at (their beginning), pushed, popped (first time), failed (attempts), finished, cancelled, expired,
    dead, lost, unpopped (cancelled or expired, and never popped).
    """
    return f"""
        select queue, {bucket('"at"', every)} as "at", {_COUNTED},
            count(*) filter (where event in ('cancelled', 'expired') and name is null) as unpopped
        from ({EVENTS}) as events group by 1, 2 order by 1, 2
    """
