-- The last :n finished messages with ids from :low to :high, highest id first. Index: the primary key.
-- Locks: none under
-- READ_COMMITTED_SNAPSHOT; else shared ones while it reads, and it waits for who is changing a row.
declare @n bigint = :n;
declare @low bigint = :low;
declare @high bigint = :high;
select top (@n)
    id, payload, headers, case when finished_at is null then 'in_progress' else 'finished' end as state, attempts,
    priority, group_key, dedup_key, producer, consumer, pushed_at, due_at, first_popped_at, popped_at,
    cast(null as datetime2(6)) as lease_until, finished_at, errors
from {history}
where id between @low and @high
order by id desc;
