-- The last :n messages with ids from :low to :high that were finished from :since on and before :until, by id, the
-- highest first. Indexes: the primary key, {table}__finished. Locks: none under
-- READ_COMMITTED_SNAPSHOT; else shared ones while it reads, and it waits for who is changing a row.
declare @n bigint = :n;
declare @low bigint = :low;
declare @high bigint = :high;
declare @since datetime2(6) = cast(:since as datetime2(6));
declare @until datetime2(6) = cast(:until as datetime2(6));
select top (@n)
    id, payload, headers, case when finished_at is null then 'in_progress' else 'finished' end as state, attempts,
    priority, group_key, dedup_key, producer, consumer, pushed_at, due_at, first_popped_at, popped_at,
    cast(null as datetime2(6)) as lease_until, finished_at, errors
from {history}
where id between @low and @high and finished_at >= @since and finished_at < @until
order by id desc;
