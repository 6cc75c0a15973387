-- Message :id, if it is in the log, and it is ready or a range in progress holds it. After a seek the last range
-- counts.
-- Index: the primary keys; the ranges are read backwards until one has it. Locks: none.
select
    {log_columns of log with
        state = case when popped_at is null then 'ready' else 'in_progress' end as state
        attempts = popped_at is not null as attempts
        consumer = consumer
        popped_at = popped_at
        lease_until = lease_until
        finished_at = null as finished_at}
from {log} as log
left join {ranges} as held on held.id = (
    select id from {ranges}
    where :id between first_offset and last_offset
        and :id <= (select last_offset from {ranges} order by id desc limit 1)
    order by id desc
    limit 1
)
where log.id = :id and (
    :id > (select last_offset from {ranges} order by id desc limit 1)
    or (lease_until is not null and :id not in (select value from json_each(coalesce(left_ids, '[]'))))
);
