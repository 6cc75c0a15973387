-- The first :n messages that are {state}, claiming none. Index: {table}_{state}. Locks: none.
select
    id, payload, headers, state, attempts, producer, consumer, pushed_at, due_at, first_popped_at, popped_at,
    lease_until, null as finished_at, errors
from {queue}
where state = '{state}'
order by id
limit :n;
