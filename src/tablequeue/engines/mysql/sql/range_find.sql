-- Message :id, if it is in the log, and it is ready or a range in progress holds it. After a seek the last range
-- counts.
-- Indexes: the primary keys, that of the runs by last_id; all ranges are read. Locks: none.
select
    {log_columns of log with
        state = case when held.id is null then 'ready' else 'in_progress' end as state
        attempts = case when held.id is null then 0 else 1 end as attempts
        consumer = consumer
        popped_at = popped_at
        lease_until = lease_until
        finished_at = cast(null as datetime(6)) as finished_at}
from {log} as log
cross join (
    select
        (
            select first_offset + :id - first_id from {runs}
            where first_id <= :id and last_id >= :id order by last_id limit 1
        ) as message_offset,
        greatest(
            (select last_offset + 1 from {ranges} order by id desc limit 1),
            (select first_offset + 1 from {runs} order by first_offset limit 1)
        ) as position
) as place
left join {ranges} as held on held.id = (
    select max(id) from {ranges}
    where place.message_offset between first_offset and last_offset and place.message_offset < place.position
)
where log.id = :id and log.pushed_at is not null and (
    message_offset is null or message_offset >= position
    or (lease_until is not null and (left_ids is null or not json_contains(left_ids, cast(log.id as char))))
);
