-- Message :id, if it is in the log, and it is ready or a range in progress holds it. After a seek the last range
-- counts.
-- Indexes: the primary keys, that of the runs by last_id; the ranges are read backwards until one has it. Locks: none.
with message as (
    select log.*, first_offset + log.id - first_id as message_offset
    from {log} as log
    left join {runs} as run on run.last_id = (select min(last_id) from {runs} where last_id >= :id)
        and first_id <= :id
    where log.id = :id and not exists (select from {parts} where :id between first_id and last_id)
), next as (
    select greatest(last_offset + 1, (select min(first_offset) + 1 from {runs})) as position
    from {ranges} order by id desc limit 1
), held as (
    select consumer, popped_at, lease_until, left_ids
    from {ranges}
    where (select message_offset from message) between first_offset and last_offset
        and (select message_offset from message) < (select position from next)
    order by id desc
    limit 1
)
select
    {log_columns with
        state = case when popped_at is null then 'ready' else 'in_progress' end as state
        attempts = case when popped_at is null then 0 else 1 end as attempts
        lease_until = lease_until
        finished_at = cast(null as timestamptz) as finished_at}
from message
cross join next
left join held on true
where message_offset is null or message_offset >= position
    or (lease_until is not null and (left_ids is null or id <> all(left_ids)));
