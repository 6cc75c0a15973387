-- The messages of :ids, which no range has: the first ones above :after; see range_ready.
-- Index: the primary key. Locks: none.
select
    {log_columns of log with
        state = 'ready' as state
        attempts = 0 as attempts
        consumer = null as consumer
        first_popped_at = cast(null as datetime(6)) as first_popped_at
        popped_at = cast(null as datetime(6)) as popped_at
        finished_at = cast(null as datetime(6)) as finished_at}
from {given} straight_join {log} as log force index (primary) on log.id = given.id
order by log.id;
