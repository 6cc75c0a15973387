-- The first :n messages of the log with an id above :after that no range has, from the position of the subscription on.
-- Of the intervals of ids only the first ones are read, which have so many messages.
-- Indexes: the primary keys, that of the runs by last_id. Locks: none.
with spans as materialized (
    select greatest(low, :after + 1) as low, high, messages from {unclaimed} as unclaimed where high > :after
), counted as (
    select
        low, high, messages,
        sum(case when messages > 0 then high - low + 1 else 0 end) over (order by low) as so_far
    from spans
)
select
    {log_columns with
        state = 'ready' as state
        attempts = 0 as attempts
        consumer = cast(null as text) as consumer
        first_popped_at = cast(null as timestamptz) as first_popped_at
        popped_at = cast(null as timestamptz) as popped_at
        finished_at = cast(null as timestamptz) as finished_at}
from counted
cross join lateral (select * from {log} where id between low and high order by id limit :n) as log
where so_far - case when messages > 0 then high - low + 1 else 0 end < :n
order by id
limit :n;
