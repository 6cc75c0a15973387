-- Of the last :n messages that the last :n ranges finished less than :age seconds ago, the last one first: producer,
-- consumer, seconds of wait and of run, attempts, and how many seconds ago each was finished. Messages that left a
-- range have the time of the last ones that did.
-- Indexes: the primary keys.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that finish messages.
-- READPAST passes over messages in flight.
declare @n bigint = :n;
declare @age float = cast(:age as float);
declare @now datetime2(6) = {now};
declare @since datetime2(6) = {now_less_age};
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
    range_id, low, high, consumer, popped_at, finished_at, left_ids, apart_ids,
    iif(high - low + 1 > messages - finished, high - low + 1 - (messages - finished), 0)
from {pieces} as piece
where finished > 0 and finished_at > @since and finished_at <= @now
    and range_id >= (
        select min(claimed.id) from (select top (@n) id from {ranges} order by id desc) as claimed
    );
select top (@n)
    producer,
    consumer,
    datediff_big(microsecond, pushed_at, popped_at) / 1e6 as wait,
    datediff_big(microsecond, popped_at, finished_at) / 1e6 as run,
    1 as attempts,
    datediff_big(microsecond, finished_at, @now) / 1e6 as ago
from (
    select log.producer, log.pushed_at, span.consumer, span.popped_at, span.finished_at
    from (
        select
            low, high, consumer, popped_at, finished_at, left_ids, apart_ids,
            sum(sure) over (order by finished_at desc, range_id, low rows unbounded preceding) - sure as so_far
        from @spans
    ) as span
    cross apply (
        select top (@n) log.producer, log.pushed_at
        from {log} as log with (readpast, readcommittedlock)
        where log.id between span.low and span.high
            and (span.left_ids is null or log.id in (select id from openjson(span.left_ids) with (id bigint '$')))
            and not exists (
                select 1 from openjson(span.apart_ids) with (id bigint '$') as one where one.id = log.id
            )
    ) as log
    where span.so_far < @n
) as finished
order by finished_at desc;
