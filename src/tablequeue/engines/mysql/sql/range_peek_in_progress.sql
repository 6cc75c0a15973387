-- The first :n messages of the log with an id above :after that ranges in progress hold.
-- Indexes: {table}__lease, the primary key. Locks: none.
select
    {log_columns with
        state = 'in_progress' as state
        lease_until = lease_until
        finished_at = cast(null as datetime(6)) as finished_at}
from {pieces} as piece
straight_join {log} as log force index (primary) on log.id between piece.low and piece.high
where lease_until is not null and log.id > :after
    and (left_ids is null or not json_contains(left_ids, cast(log.id as char)))
order by id
limit :n;
