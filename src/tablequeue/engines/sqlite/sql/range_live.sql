-- The last :n messages with ids from :low to :high that are live, in whatever state, highest id first: those apart,
-- those that ranges in progress hold, and those that no range has. As a message apart, it comes once.
-- Indexes: the primary keys, {table}__lease. Locks: none.
-- With max() the other columns are those of the row that has the maximum.
select
    {live_columns with
        attempts = max(attempts) as attempts
        finished_at = null as finished_at}
from (
    select * from (
        select
            {queue_row without token}
        from {queue}
        where id between :low and :high
        order by id desc
        limit :n
    )
    union all
    select
        {queue_row of log without token with
            state = 'in_progress'
            attempts = 1
            priority = 0
            due_at = null
            first_popped_at = popped_at
            popped_at = popped_at
            lease_until = lease_until
            dedup_key = null
            consumer = consumer
            errors = null}
    from {ranges} as ranges
    join {log} as log on log.id between max(first_offset, :low) and min(last_offset, :high)
    where lease_until is not null and log.id not in (select value from json_each(coalesce(left_ids, '[]')))
    union all
    select * from (
        select
            {queue_row without token with
                state = 'ready'
                attempts = 0
                priority = 0
                due_at = null
                first_popped_at = null
                popped_at = null
                lease_until = null
                dedup_key = null
                consumer = null
                errors = null}
        from {log}
        where id between :low and :high and id > (select last_offset from {ranges} order by id desc limit 1)
        order by id desc
        limit :n
    )
) as live
group by id
order by id desc
limit :n;
