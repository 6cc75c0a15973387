-- The lowest and the highest id of the live messages of a subscription, and of ranges in progress.
-- Indexes: the primary keys, {table}__lease.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that finish messages.
-- READPAST passes over messages in flight.
declare @last bigint;
select @last = max(id)
from {log} with (readpast, readcommittedlock);
select min(low) as low, max(high) as high
from (
    select min(id) as low, max(id) as high from {queue}
    union all
    select low, high from {pieces} as piece where lease_until is not null
    union all
    select low, iif(high < @last, high, @last) from {unclaimed} as unclaimed
) as bounds
where low <= high;
