-- The lowest and the highest id of the ranges that finished messages from :since on and before :until, and of the
-- messages of the subscription's history that were: no other id has such a message.
-- Indexes: the primary keys, {table}__finished; all ranges are read.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that finish messages.
declare @since datetime2(6) = cast(:since as datetime2(6));
declare @until datetime2(6) = cast(:until as datetime2(6));
select min(low) as low, max(high) as high
from (
    select low, high
    from {pieces} as piece
    where finished > 0 and finished_at >= @since and finished_at < @until
    union all
    select min(id), max(id) from {history} where finished_at >= @since and finished_at < @until
) as bounds;
