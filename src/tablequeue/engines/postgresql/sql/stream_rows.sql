-- Those of :ids that are in progress under :token. Index: the primary key. Locks: none.
select
    id, payload, headers, state, attempts, priority, group_key, dedup_key, producer, consumer, pushed_at, due_at,
    first_popped_at, popped_at, lease_until, cast(null as timestamptz) as finished_at, errors
from {queue}
where id = any(cast(:ids as bigint[])) and token = cast(:token as uuid)
order by id;
