-- The first :n messages that are {state} with an id above :after, claiming none. Index: {table}__state. Locks: none.
select
    id, payload, headers, state, attempts, priority, convert(group_key using utf8mb4) as group_key,
    convert(dedup_key using utf8mb4) as dedup_key, producer, consumer, pushed_at, due_at,
    first_popped_at, popped_at, lease_until, cast(null as datetime(6)) as finished_at, errors
from {queue} force index ({table}__state)
where state = '{state}'{unswept} and id > :after
order by id
limit :n;
