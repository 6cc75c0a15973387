-- The first :n messages of the log with an id above :after that no range has, from the position of the subscription on.
-- Of the intervals of ids only the first ones are read, which have so many messages.
-- Indexes: the primary keys, that of the runs by last_id.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that finish messages.
-- READPAST passes over messages in flight.
declare @n bigint = :n;
declare @after bigint = :after;
declare @spans table (low bigint not null primary key, high bigint not null, sure bigint not null);
insert into @spans (low, high, sure)
select span.low, span.high, case when span.messages > 0 then span.high - span.low + 1 else 0 end
from (
    select iif(low > @after, low, @after + 1) as low, high, messages
    from {unclaimed} as unclaimed
    where high > @after
) as span;
select top (@n)
    {history_columns with
        state = state
        lease_until = lease_until}
from (
    select
        {log_columns with
            state = 'ready' as state
            attempts = 0 as attempts
            consumer = cast(null as nvarchar(512)) as consumer
            first_popped_at = cast(null as datetime2(6)) as first_popped_at
            popped_at = cast(null as datetime2(6)) as popped_at
            finished_at = cast(null as datetime2(6)) as finished_at}
    from (
        select low, high, sum(sure) over (order by low rows unbounded preceding) - sure as so_far from @spans
    ) as span
    cross apply (
        select top (@n) id, pushed_at, producer, group_key, headers, payload
        from {log} with (readpast, readcommittedlock)
        where id between span.low and span.high
        order by id
    ) as log
    where span.so_far < @n
) as found
order by id;
