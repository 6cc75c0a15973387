-- The ids of the messages in progress under :token, which is a stream's and has no lease, in their order.
-- Index: {table}__state. Locks: none.
select id
from {queue}
where state = 'in_progress' and sweep_at is null and token = :token
order by id;
