-- End the leases of the ranges that have messages with an offset from :start on, for a seek that is forced. Their
-- messages are then set apart as if it had expired.
-- Index: {table}__lease. Locks: the rows; locked rows are skipped. In one transaction with range_seek.
declare @start bigint = :start;
declare @now datetime2(6) = {now};
update held
set lease_until = @now
from {ranges} as held with (rowlock, readpast, readcommittedlock)
where held.lease_until > @now and held.last_offset >= @start;
