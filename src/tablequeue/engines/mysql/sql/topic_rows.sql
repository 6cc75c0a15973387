-- The messages at the offsets from :start on and before :end, mostly in their order.
-- Indexes: the primary keys. Locks: none.
select
    run.first_offset + log.id - run.first_id as message_offset, log.id, payload, headers,
    convert(group_key using utf8mb4) as group_key, producer, pushed_at
from {runs} as run force index (primary)
straight_join {log} as log force index (primary) on log.id
    between run.first_id + greatest(:start - run.first_offset, 0)
    and least(run.last_id, run.first_id + :end - 1 - run.first_offset)
where run.first_offset < :end
    and run.first_offset >= coalesce((select max(first_offset) from {runs} where first_offset <= :start), 0);
