-- The first :n messages that were claimed at most once, :age seconds ago or longer, and not acknowledged.
-- Index: {table}__finished. Locks: none.
select
    id, payload, headers, case when finished_at is null then 'in_progress' else 'finished' end as state, attempts,
    priority, group_key, dedup_key, producer, consumer, pushed_at, due_at, first_popped_at, popped_at,
    null as lease_until, finished_at, errors
from {history}
where finished_at is null and popped_at <= {now} - cast(:age * 1000000 as integer)
order by id
limit :n;
