-- The first :n messages that are {state} with an id above :after, claiming none. Index: {table}__{state}. Locks: none.
select
    id, payload, headers, state, attempts, priority, group_key, dedup_key, producer, consumer, pushed_at, due_at,
    first_popped_at, popped_at, lease_until, null as finished_at, errors
from {queue}
where state = '{state}' and id > :after
order by id
limit :n;
