-- The lowest and the highest id of the live messages of a subscription, and of ranges in progress.
-- Indexes: the primary keys, {table}__lease, that of the runs by last_id. Locks: none.
select min(low), max(high)
from (
    select min(id) as low, max(id) as high from {queue}
    union all
    select low, high from {pieces} as piece where lease_until is not null
    union all
    select low, high from {unclaimed} as unclaimed
    union all
    select min(id), max(id) from {log} where id > (select last_id from {runs} order by last_id desc limit 1)
    union all
    select min(log.id), max(log.id)
    from {holes} as hole
    straight_join {log} as log force index (primary) on log.id between hole.first_id and hole.last_id
    where pushed_at is not null
) as bounds;
