-- The ids of the messages in progress under :token, which is a stream's and has no lease, in their order.
-- Index: {table}__in_progress. Locks: none.
select id
from {queue}
where state = 'in_progress' and lease_until is null and token = cast(:token as uuid)
order by id;
