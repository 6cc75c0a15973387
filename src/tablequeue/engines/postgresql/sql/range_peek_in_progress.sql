-- The first :n messages of the log with an id above :after that ranges in progress hold.
-- Indexes: {table}__lease, the primary keys. Locks: none.
select
    {log_columns with
        state = 'in_progress' as state
        lease_until = lease_until
        finished_at = cast(null as timestamptz) as finished_at}
from {pieces} as piece
cross join lateral (
    select *
    from {log}
    where id between greatest(low, :after + 1) and high and (left_ids is null or id <> all(left_ids))
    order by id
    limit :n
) as log
where lease_until is not null
order by id
limit :n;
