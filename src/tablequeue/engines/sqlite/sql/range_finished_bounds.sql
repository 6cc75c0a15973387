-- The lowest and the highest id of the ranges that finished messages from :since on and before :until, and of the
-- messages of the subscription's history that were: no other id has such a message.
-- Indexes: the primary keys, {table}__finished; all ranges are read. Locks: none.
select max(min(low), (select min(id) from {log})), max(high)
from (
    select first_offset as low, last_offset as high
    from {ranges}
    where {finished_messages} > 0 and finished_at >= :since and finished_at < :until
    union all
    select min(id), max(id) from {history} where finished_at >= :since and finished_at < :until
) as bounds;
