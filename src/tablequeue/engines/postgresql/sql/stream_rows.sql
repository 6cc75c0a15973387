-- Those of :ids that are in progress under :token, which is a stream's and has no lease. Locks: none.
-- Index: {table}__in_progress; by the ids alone 5,000 of 100,000 messages were found by reading them all.
select
    id, payload, headers, state, attempts, priority, group_key, dedup_key, producer, consumer, pushed_at, due_at,
    first_popped_at, popped_at, lease_until, cast(null as timestamptz) as finished_at, errors
from {queue}
where state = 'in_progress' and lease_until is null and token = cast(:token as uuid)
    and id = any(cast(:ids as bigint[]))
order by id;
