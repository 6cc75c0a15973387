-- The messages at the offsets from :start on and before :end, mostly in their order.
-- Indexes: those of the runs, the primary key of the log. Locks: none.
-- No order by: it would sort the messages, though the indexes have the order already.
select
    run.first_offset + log.id - run.first_id as message_offset, log.id, payload, headers, group_key, producer, pushed_at
from (
    select first_offset, first_id, last_id
    from {runs}
    where first_offset < :end
        and first_offset >= coalesce((select max(first_offset) from {runs} where first_offset <= :start), 0)
    order by first_offset
) as run
join {log} as log on log.id
    between run.first_id + greatest(:start - run.first_offset, 0)
    and least(run.last_id, run.first_id + :end - 1 - run.first_offset);
