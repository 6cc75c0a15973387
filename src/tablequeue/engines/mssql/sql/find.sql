-- One message of the queue, whatever its state. Index: the primary key. Locks: none under
-- READ_COMMITTED_SNAPSHOT; else shared ones while it reads, and it waits for who is changing a row.
declare @id bigint = :id;
select
    id, payload, headers, state, attempts, priority, convert(nvarchar(510), group_key) as group_key,
    convert(nvarchar(510), dedup_key) as dedup_key, producer, consumer, pushed_at, due_at, first_popped_at, popped_at,
    lease_until, cast(null as datetime2(6)) as finished_at, errors
from {queue}
where id = @id;
