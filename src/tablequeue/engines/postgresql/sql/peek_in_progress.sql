-- As peek, of the messages in progress: those of the table, and those in packs. Locks: none.
-- Index: {table}__in_progress.
select *
from (
    select
        id, payload, headers, state, attempts, priority, group_key, dedup_key, producer, consumer, pushed_at, due_at,
        first_popped_at, popped_at, lease_until, cast(null as timestamptz) as finished_at, errors
    from {queue}
    where state = 'in_progress'
    union all
    select
        id, payload, headers, state, attempts, priority, group_key, dedup_key, producer, consumer, pushed_at, due_at,
        first_popped_at, popped_at, lease_until, cast(null as timestamptz) as finished_at, errors
    from {packed}
    where last_id > :after
) as message
where id > :after
order by id
limit :n;
