-- The last :n finished messages with ids from :low to :high, highest id first. Index: the primary key. Locks: none.
select
    id, payload, headers, case when finished_at is null then 'in_progress' else 'finished' end as state, attempts,
    priority, group_key, dedup_key, producer, consumer, pushed_at, due_at, first_popped_at, popped_at,
    cast(null as timestamptz) as lease_until, finished_at, errors
from {history}
where id between :low and :high
order by id desc
limit :n;
