-- One message of the queue, whatever its state. Index: the primary key. Locks: none.
select
    id, payload, headers, state, attempts, priority, group_key, dedup_key, producer, consumer, pushed_at, due_at,
    first_popped_at, popped_at, lease_until, cast(null as timestamptz) as finished_at, errors
from {queue}
where id = :id
union all
select
    id, payload, headers, state, attempts, priority, group_key, dedup_key, producer, consumer, pushed_at, due_at,
    first_popped_at, popped_at, lease_until, cast(null as timestamptz) as finished_at, errors
from {packed}
where :id between first_id and last_id and id = :id;
