"""The totals of each queue."""

from __future__ import annotations

from tablequeue.spark.reports.messages import ENDS, REDRIVEN

_STATES = ",\n        ".join(
    f"count(*) filter (where state = '{name}') as {name}" for name in ("in_progress", *ENDS[1:])
)

OVERVIEW = f"""
    select queue, count(*) as messages,
        count(*) filter (where state = 'finished') as finished,
        count(*) filter (where state = 'finished' and attempts > 1) as retried,
        count(*) filter (where state not in {ENDS}) as backlog,
        {_STATES}, count(redriven_id) as redriven,
        count(distinct producer) as producers, count(distinct consumer) as consumers,
        min(pushed_at) as first_at, max(greatest(pushed_at, popped_at, finished_at)) as last_at
    from messages left join (select queue as redriven_queue, id as redriven_id from ({REDRIVEN}) as found) as redriven
        on redriven_queue = queue and redriven_id = id
    group by queue order by queue
"""
"""A row for each queue.

Columns: queue, messages, finished, retried (of these, after another attempt had failed), backlog (pushed, and not
ended), in_progress (of these), cancelled, expired, dead, lost, redriven (at least once, whatever became of them),
producers, consumers, first_at (the first push), last_at (the last push, pop or end).
"""
