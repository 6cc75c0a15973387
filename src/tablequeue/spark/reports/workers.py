"""The work of every producer and every consumer."""

from __future__ import annotations

from tablequeue.spark.reports.messages import EXPIRED, FAILURES, seconds_between
from tablequeue.spark.reports.times import percentile

# What each producer and consumer did with each message.
_WORK = f"""
    select queue, 'producer' as role, producer as name, pushed_at as done_at, false as retried,
        cast(null as double) as run, cast(null as string) as error, cast(null as timestamp) as held_at
    from messages
    union all
    select queue, 'consumer', consumer, finished_at, attempts > 1, {seconds_between("popped_at", "finished_at")}, null,
        null
    from messages where state = 'finished'
    union all
    select queue, 'consumer', failure.consumer, null, false, null, failure.error, null from ({FAILURES}) as failures
    where failure.error is not null
    union all
    select queue, 'consumer', consumer, null, false, null, null, popped_at from messages where state = 'in_progress'
"""


def _of_consumers(value: str) -> str:
    return f"case when role = 'consumer' then {value} end"


WORKERS = f"""
    select queue, role, name, count(done_at) as messages,
        count(done_at) / nullif(sum(count(done_at)) over (partition by queue, role), 0) as share,
        min(done_at) as first_at, max(done_at) as last_at,
        count(done_at) / nullif({seconds_between("min(done_at)", "max(done_at)")}, 0) as per_second,
        {_of_consumers("count(*) filter (where retried)")} as retried,
        {_of_consumers("count(error)")} as failures,
        {_of_consumers(f"count(*) filter (where error = '{EXPIRED}')")} as expired,
        {_of_consumers("count(held_at)")} as holds, min(held_at) as holds_since,
        {percentile("run", 0.5)} as run_p50, {percentile("run", 0.95)} as run_p95
    from ({_WORK}) as work group by queue, role, name order by queue, role desc, name
"""
"""A row for each producer and each consumer of each queue.

Columns: queue, role (`producer` or `consumer`), name, messages (pushed, or finished), share (of all messages of that
role), first_at, last_at (the first and the last of these), per_second (between these two; null if they are equal). For
consumers also: retried (messages that it finished after a failed attempt), failures (its failed attempts), expired
(failures by an expired lease: the consumer died or was too slow, and the message was delivered again), holds (messages
in progress), holds_since (the pop of the first of these), run_p50 and run_p95 (seconds).
"""
