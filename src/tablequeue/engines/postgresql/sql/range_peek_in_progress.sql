-- The first :n messages of the log with an id above :after that ranges in progress hold.
-- Indexes: {table}__lease, the primary keys. Locks: none.
select
    {log_columns with
        state = 'in_progress' as state
        lease_until = lease_until
        finished_at = cast(null as timestamptz) as finished_at}
from {pieces} as piece
join {log} as log on log.id between greatest(low, :after + 1) and high
where lease_until is not null and (left_ids is null or log.id <> all(left_ids))
order by log.id
limit :n;
