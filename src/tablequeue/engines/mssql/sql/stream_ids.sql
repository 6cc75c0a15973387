-- The ids of the messages in progress under :token, which is a stream's and has no lease, in no order.
-- Index: {table}__in_progress, forced as in claim, of which it reads what has no lease.
-- Locks: none under READ_COMMITTED_SNAPSHOT; else it waits for other streams that are claiming.
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
select id
from {queue} with (index ({table}__in_progress))
where state = 'in_progress' and lease_until is null and token = @token;
