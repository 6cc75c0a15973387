-- The first :n messages that were claimed at most once, :age seconds ago or longer, and not acknowledged.
-- Index: {table}__finished, which has them by id. Locks: none.
select
    id, payload, headers, case when finished_at is null then 'in_progress' else 'finished' end as state, attempts,
    priority, convert(group_key using utf8mb4) as group_key, convert(dedup_key using utf8mb4) as dedup_key, producer,
    consumer, pushed_at, due_at, first_popped_at, popped_at, cast(null as datetime(6)) as lease_until, finished_at,
    errors
from {history} force index ({table}__finished)
where finished_at is null and popped_at <= {now} - interval :age second
order by id
limit :n;
