-- The lowest and the highest id of the live messages of a subscription, and of ranges in progress.
-- Indexes: the primary keys, {table}__lease. Locks: none.
select min(low), max(high)
from (
    select min(id) as low, max(id) as high from {queue}
    union all
    select min(first_id), max(last_id) from {packs}
    union all
    select low, high from {pieces} as piece where lease_until is not null
    union all
    select low, least(high, (select max(id) from {log})) from {unclaimed} as unclaimed
) as bounds
where low <= high;
