-- The first :n messages of the log with an id above :after that no range has, from the position of the subscription on:
-- those with offsets, those above the last run, and those in holes. Of the intervals of ids only the first ones are
-- read, which have so many messages.
-- Indexes: the primary keys, that of the runs by last_id. Locks: none.
with spans as (
    select greatest(low, :after + 1) as low, high from {unclaimed} as unclaimed where high > :after
), counted as (
    select low, high, sum(high - low + 1) over (order by low) as so_far from spans
)
select
    {log_columns with
        state = 'ready' as state
        attempts = 0 as attempts
        consumer = null as consumer
        first_popped_at = cast(null as datetime(6)) as first_popped_at
        popped_at = cast(null as datetime(6)) as popped_at
        finished_at = cast(null as datetime(6)) as finished_at}
from (
    select log.*
    from counted
    straight_join {log} as log force index (primary) on log.id between low and high
    where so_far - (high - low + 1) < :n
    union all
    (
        select *
        from {log}
        where id > greatest(:after, (select last_id from {runs} order by last_id desc limit 1))
        order by id
        limit :n
    )
    union all
    select log.*
    from {holes} as hole
    straight_join {log} as log force index (primary) on log.id between hole.first_id and hole.last_id
    where hole.last_id > :after and log.id > :after and pushed_at is not null
) as ready
order by id
limit :n;
