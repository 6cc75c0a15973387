-- The last :n messages of a queue with ids from :low to :high, in whatever state, highest id first.
-- Index: the primary key. Locks: none under
-- READ_COMMITTED_SNAPSHOT; else shared ones while it reads, and it waits for who is changing a row.
declare @n bigint = :n;
declare @low bigint = :low;
declare @high bigint = :high;
select top (@n)
    id, payload, headers, state, attempts, priority, convert(nvarchar(510), group_key) as group_key,
    convert(nvarchar(510), dedup_key) as dedup_key, producer, consumer, pushed_at, due_at, first_popped_at, popped_at,
    lease_until, cast(null as datetime2(6)) as finished_at, errors
from {queue}
where id between @low and @high
order by id desc;
