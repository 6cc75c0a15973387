-- Those of :ids that are in progress under :token. Index: the primary key. Locks: none.
select
    id, payload, headers, state, attempts, priority, group_key, dedup_key, producer, consumer, pushed_at, due_at,
    first_popped_at, popped_at, lease_until, null as finished_at, errors
from {queue}
where id in (select value from json_each(:ids)) and token = :token
order by id;
