-- Read the messages of :ids that are in progress under :token, which is a stream's and has no lease. Locks: none.
-- Index: {table}__in_progress; by the ids alone 5,000 of 100,000 messages were found by reading them all.
select
    {live_columns}
from {queue}
where state = 'in_progress' and lease_until is null and token = cast(:token as uuid)
    and id = any(cast(:ids as bigint[]))
order by id;
