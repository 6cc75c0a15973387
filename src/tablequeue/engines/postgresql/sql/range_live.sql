-- The last :n messages with ids from :low to :high that are live, in whatever state, highest id first: those apart,
-- those that ranges in progress hold, and those that no range has. As a message apart, it comes once.
-- Indexes: the primary keys, {table}__lease, that of the runs by last_id. Locks: none.
with spans as materialized (
    select greatest(low, :low) as low, least(high, :high) as high, messages
    from {unclaimed} as unclaimed
    where high >= :low and low <= :high
), counted as (
    select
        low, high, messages,
        sum(case when messages > 0 then high - low + 1 else 0 end) over (order by low desc) as so_far
    from spans
)
select distinct on (id) *
from (
    select
        {live_columns}
    from {queue}
    where id between :low and :high
    union all
    select
        {live_columns}
    from {packed}
    where first_id <= :high and last_id >= :low and id between :low and :high
    union all
    select
        {log_columns with
            state = 'in_progress' as state
            lease_until = lease_until
            finished_at = cast(null as timestamptz) as finished_at}
    from {pieces} as piece
    cross join lateral (
        select *
        from {log}
        where id between greatest(low, :low) and least(high, :high) and (left_ids is null or id <> all(left_ids))
        order by id desc
        limit :n
    ) as log
    where lease_until is not null
    union all
    select
        {log_columns with
            state = 'ready' as state
            attempts = 0 as attempts
            consumer = cast(null as text) as consumer
            first_popped_at = cast(null as timestamptz) as first_popped_at
            popped_at = cast(null as timestamptz) as popped_at
            finished_at = cast(null as timestamptz) as finished_at}
    from counted
    cross join lateral (select * from {log} where id between low and high order by id desc limit :n) as log
    where so_far - case when messages > 0 then high - low + 1 else 0 end < :n
) as live
order by id desc, attempts desc
limit :n;
