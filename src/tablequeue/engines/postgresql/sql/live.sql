-- The last :n messages of a queue with ids from :low to :high, in whatever state, highest id first.
-- Index: the primary key. Locks: none.
select *
from (
    select
        id, payload, headers, state, attempts, priority, group_key, dedup_key, producer, consumer, pushed_at, due_at,
        first_popped_at, popped_at, lease_until, cast(null as timestamptz) as finished_at, errors
    from {queue}
    union all
    select
        id, payload, headers, state, attempts, priority, group_key, dedup_key, producer, consumer, pushed_at, due_at,
        first_popped_at, popped_at, lease_until, cast(null as timestamptz) as finished_at, errors
    from {packed}
    where first_id <= :high and last_id >= :low
) as message
where id between :low and :high
order by id desc
limit :n;
