-- The last :n messages with ids from :low to :high that are live, in whatever state, highest id first: those apart,
-- those that ranges in progress hold, and those that no range has. As a message apart, it comes once.
-- Indexes: the primary keys, {table}__lease, that of the runs by last_id.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that finish messages.
-- READPAST passes over messages in flight.
declare @n bigint = :n;
declare @low bigint = :low;
declare @high bigint = :high;
declare @spans table (low bigint not null primary key, high bigint not null, sure bigint not null);
insert into @spans (low, high, sure)
select span.low, span.high, case when span.messages > 0 then span.high - span.low + 1 else 0 end
from (
    select iif(low > @low, low, @low) as low, iif(high < @high, high, @high) as high, messages
    from {unclaimed} as unclaimed
    where high >= @low and low <= @high
) as span;
select top (@n)
    {history_columns with
        state = state
        lease_until = lease_until}
from (
    select
        {history_columns with
            state = state
            lease_until = lease_until},
        row_number() over (partition by id order by attempts desc) as place
    from (
        select
            {live_columns}
        from {queue}
        where id between @low and @high
        union all
        select
            {log_columns with
                state = 'in_progress' as state
                lease_until = lease_until
                finished_at = cast(null as datetime2(6)) as finished_at}
        from {pieces} as piece
        cross apply (
            select top (@n) log.id, log.pushed_at, log.producer, log.group_key, log.headers, log.payload
            from {log} as log with (readpast, readcommittedlock)
            where log.id between piece.low and piece.high and log.id between @low and @high
                and not exists (
                    select 1 from openjson(piece.left_ids) with (id bigint '$') as gone where gone.id = log.id
                )
            order by log.id desc
        ) as log
        where piece.lease_until is not null
        union all
        select
            {log_columns with
                state = 'ready' as state
                attempts = 0 as attempts
                consumer = cast(null as nvarchar(512)) as consumer
                first_popped_at = cast(null as datetime2(6)) as first_popped_at
                popped_at = cast(null as datetime2(6)) as popped_at
                finished_at = cast(null as datetime2(6)) as finished_at}
        from (
            select low, high, sum(sure) over (order by low desc rows unbounded preceding) - sure as so_far from @spans
        ) as span
        cross apply (
            select top (@n) id, pushed_at, producer, group_key, headers, payload
            from {log} with (readpast, readcommittedlock)
            where id between span.low and span.high
            order by id desc
        ) as log
        where span.so_far < @n
    ) as each_one
) as live
where place = 1
order by id desc;
