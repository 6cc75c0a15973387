-- The first :n messages of the log with an id above :after that ranges in progress hold.
-- Indexes: {table}__lease, the primary key. Locks: none.
select
    {log_columns of log with
        state = 'in_progress' as state
        consumer = consumer
        popped_at = popped_at
        lease_until = lease_until
        finished_at = null as finished_at}
from {ranges} as ranges
join {log} as log on log.id between first_offset and last_offset
where lease_until is not null and log.id > :after
    and log.id not in (select value from json_each(coalesce(left_ids, '[]')))
order by log.id
limit :n;
