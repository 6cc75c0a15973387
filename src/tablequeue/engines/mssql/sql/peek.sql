-- The first :n messages that are {state} with an id above :after, claiming none. Index: {table}__{state}.
-- Locks: none under
-- READ_COMMITTED_SNAPSHOT; else shared ones while it reads, and it waits for who is changing a row.
declare @n bigint = :n;
declare @after bigint = :after;
select top (@n)
    id, payload, headers, state, attempts, priority, convert(nvarchar(510), group_key) as group_key,
    convert(nvarchar(510), dedup_key) as dedup_key, producer, consumer, pushed_at, due_at, first_popped_at, popped_at,
    lease_until, cast(null as datetime2(6)) as finished_at, errors
from {queue}
where state = '{state}' and id > @after
order by id;
