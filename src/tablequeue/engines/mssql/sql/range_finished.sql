-- The last :n messages with ids from :low to :high finished from :since on and before :until, highest id first: those
-- that ranges finished (with :final only those that are not in progress any more), if the log still has them, and those
-- of the history of the subscription. Messages that left a range have the time of the last ones that did. If a message
-- was finished again after a seek, its last pop counts.
-- Of the intervals of ids only the first ones are read, which have so many finished messages, whatever was read again.
-- Indexes: the primary keys; all ranges are read.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that finish messages.
-- READPAST passes over messages in flight.
declare @n bigint = :n;
declare @low bigint = :low;
declare @high bigint = :high;
declare @since datetime2(6) = cast(:since as datetime2(6));
declare @until datetime2(6) = cast(:until as datetime2(6));
declare @final bit = :final;
declare @reach bigint;
declare @spans table (
    range_id bigint not null,
    low bigint not null,
    high bigint not null,
    consumer nvarchar(512) null,
    popped_at datetime2(6) not null,
    finished_at datetime2(6) not null,
    left_ids varchar(max) null,
    apart_ids varchar(max) null,
    sure bigint not null,
    primary key (range_id, low)
);
insert into @spans (range_id, low, high, consumer, popped_at, finished_at, left_ids, apart_ids, sure)
select
    span.range_id, span.low, span.high, span.consumer, span.popped_at, span.finished_at, span.left_ids, span.apart_ids,
    iif(span.high - span.low + 1 > span.others, span.high - span.low + 1 - span.others, 0)
from (
    select
        range_id, iif(low > @low, low, @low) as low, iif(high < @high, high, @high) as high, consumer, popped_at,
        finished_at, left_ids, apart_ids, messages - finished as others
    from {pieces} as piece
    where finished > 0 and (lease_until is null or @final = 0)
        and finished_at >= @since and finished_at < @until and low <= @high and high >= @low
) as span;
select @reach = min(counted.low)
from (
    select low, sum(sure) over (order by low desc, range_id rows unbounded preceding) - sure as so_far from @spans
) as counted
where counted.so_far < @n * (1 + (select count(*) from {ranges} where messages = 0));
select top (@n)
    {history_columns with
        state = state
        lease_until = lease_until}
from (
    select
        {history_columns with
            state = state
            lease_until = lease_until},
        row_number() over (partition by id order by popped_at desc) as place
    from (
        select
            {log_columns}
        from @spans as span
        cross apply (
            select top (@n) log.id, log.pushed_at, log.producer, log.group_key, log.headers, log.payload
            from {log} as log with (readpast, readcommittedlock)
            where log.id between span.low and span.high
                and (span.left_ids is null or log.id in (select id from openjson(span.left_ids) with (id bigint '$')))
                and not exists (
                    select 1 from openjson(span.apart_ids) with (id bigint '$') as one where one.id = log.id
                )
            order by log.id desc
        ) as log
        where span.high >= @reach
        union all
        select
            {history_columns}
        from {history}
        where id between @low and @high and finished_at >= @since and finished_at < @until
    ) as each_one
) as finished
where place = 1
order by id desc;
