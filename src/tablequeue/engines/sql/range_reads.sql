-- Reads of a subscription: its ranges of the log, and the messages in them.

-- name: range_finished_bounds
-- For `+ 0` see finished_bounds.
-- Indexes: the primary keys, {table}__finished; all ranges are read. Locks: none.
select min(low), max(high)
from (
    select low, high
    from {pieces} as piece
    where finished > 0 and finished_at >= :since and finished_at < :until
    union all
    select min(id + 0), max(id + 0) from {history} where finished_at >= :since and finished_at < :until
) as bounds;
