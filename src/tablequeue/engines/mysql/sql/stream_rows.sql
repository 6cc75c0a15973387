-- Those of :ids that are in progress under :token. Index: the primary key. Locks: none.
select
    message.id, payload, headers, state, attempts, priority, convert(group_key using utf8mb4) as group_key,
    convert(dedup_key using utf8mb4) as dedup_key, producer, consumer, pushed_at, due_at, first_popped_at, popped_at,
    lease_until, cast(null as datetime(6)) as finished_at, errors
from {given} straight_join {queue} as message force index (primary) on message.id = given.id and token = :token
order by message.id;
