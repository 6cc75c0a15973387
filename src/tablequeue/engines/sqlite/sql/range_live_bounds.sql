-- The lowest and the highest id of the live messages of a subscription, and of ranges in progress.
-- Indexes: the primary keys, {table}__lease. Locks: none.
select min(low), max(high)
from (
    select min(id) as low, max(id) as high from {queue}
    union all
    select min(first_offset), max(last_offset) from {ranges} where lease_until is not null
    union all
    select min(id), max(id) from {log} where id > (select last_offset from {ranges} order by id desc limit 1)
) as bounds;
