-- The first :n messages of the log with an id above :after that ranges in progress hold.
-- Indexes: {table}__lease, the primary keys.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that finish messages.
-- READPAST passes over messages in flight.
declare @n bigint = :n;
declare @after bigint = :after;
select top (@n)
    {history_columns with
        state = state
        lease_until = lease_until}
from (
    select
        {log_columns with
            state = 'in_progress' as state
            lease_until = lease_until
            finished_at = cast(null as datetime2(6)) as finished_at}
    from {pieces} as piece
    cross apply (
        select top (@n) log.id, log.pushed_at, log.producer, log.group_key, log.headers, log.payload
        from {log} as log with (readpast, readcommittedlock)
        where log.id between piece.low and piece.high and log.id > @after
            and not exists (
                select 1 from openjson(piece.left_ids) with (id bigint '$') as gone where gone.id = log.id
            )
        order by log.id
    ) as log
    where piece.lease_until is not null
) as found
order by id;
