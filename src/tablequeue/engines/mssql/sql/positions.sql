-- The position of a subscription and its progress: read it, and move it.

-- name: range_floor
-- Indexes: {table}__lease, {table}__last. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it is refused
-- (error 1222) while a transaction is finishing a range, which may be rolled back; topics.py says what then.
select top (1)
    (select min(held.first_offset) from {ranges} as held with (nowait) where held.lease_until is not null) as first,
    last_offset + 1 as position
from {ranges} with (index ({table}__last), readcommittedlock)
order by id desc;

-- name: range_seek
-- The row has no messages. Index: none. Locks: the new row; range_wait comes before it.
insert into {ranges} (first_offset, last_offset, messages, ids_sum, popped_at, finished_at)
values (@start, @start - 1, 0, 0, @now, @now);

-- name: range_absorb
-- A message before :start that some consumer has had stays, and so does one that the log does not have any more. 1,000
-- a statement; see create. Each is asked again when it is locked: a consumer may have had one since it was found.
-- Indexes: the primary keys, runs by last_id; all detached messages are read.
-- Locks: the rows; locked rows are skipped, and range_remaining finds them. In one transaction with range_seek.
declare @deleted bigint = 1000;
declare @number bigint = 0;
declare @gone table (id bigint not null primary key);
insert into @gone (id)
select message.id
from {queue} as message with (readpast, readcommittedlock)
where (@force = 1 or message.state <> 'in_progress') and (message.first_popped_at is null or exists (
        select 1
        from (select top (1) first_offset, first_id from {runs} where last_id >= message.id order by last_id) as run
        where run.first_id <= message.id and run.first_offset + message.id - run.first_id >= @start
            and run.first_offset > (select min(every.first_offset) from {runs} as every)
    ));
while @deleted > 0
begin
    delete top (1000) from message
{note_deleted}    from {queue} as message with (rowlock, readpast, readcommittedlock, forceseek)
    where message.id in (select one.id from @gone as one) and (@force = 1 or message.state <> 'in_progress')
        and (message.first_popped_at is null or exists (
            select 1
            from (select top (1) first_offset, first_id from {runs} where last_id >= message.id order by last_id) as run
            where run.first_id <= message.id and run.first_offset + message.id - run.first_id >= @start
                and run.first_offset > (select min(every.first_offset) from {runs} as every)
        ));
    set @deleted = rowcount_big();
    set @number = @number + @deleted;
end;
select @number as deleted;

-- name: range_wait
-- Wait for the lock of a subscription's claims, and keep it until the transaction ends.
-- Index: none. Locks: an application lock, no rows.
declare @granted int;
declare @resource nvarchar(255) = concat(N'tablequeue claim ', object_id(N'{ranges}'));
exec @granted = sp_getapplock @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction';
if @granted < 0
    throw 51000, N'tablequeue: other consumers are claiming from this subscription', 1;

-- name: range_end_leases
-- Index: {table}__lease. Locks: the rows; locked rows are skipped. In one transaction with range_seek.
update held
set lease_until = @now
from {ranges} as held with (rowlock, readpast, readcommittedlock)
where held.lease_until > @now and held.last_offset >= @start;

-- name: range_remaining
-- Indexes: {table}__lease, the primary keys, that of the runs by last_id; all detached messages are read.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that finish messages.
select
    (select count_big(*) from {ranges} where lease_until is not null and last_offset >= @start)
    + (
        select count_big(*)
        from {queue} as message
        where message.first_popped_at is null or exists (
            select 1
            from (select top (1) first_offset, first_id from {runs} where last_id >= message.id order by last_id) as run
            where run.first_id <= message.id and run.first_offset + message.id - run.first_id >= @start
                and run.first_offset > (select min(every.first_offset) from {runs} as every)
        )
    ) as remaining;

-- name: range_position
-- Index: {table}__last. Locks: none that lasts.
select top (1) last_offset + 1 as position, id, consumer
from {ranges} with (index ({table}__last), readcommittedlock)
order by id desc;

-- name: range_note
-- Indexes: {table}__last, {table}__lease. Locks: range_wait comes before it, so that it sees the last claim.
declare @begun datetime2(6) = {now_less_age};
declare @next bigint;
declare @in_progress bigint;
select top (1) @next = last_offset + 1
from {ranges} with (index ({table}__last), readcommittedlock)
order by id desc;
select @in_progress = count_big(*)
from {ranges}
where lease_until is not null;
insert into {ranges} (first_offset, last_offset, messages, ids_sum, consumer, popped_at, finished_at)
select @next, @start - 1, @start - @next, 0, @consumer, @begun, @now
where @next < @start and @in_progress = 0;
select @in_progress as in_progress;

-- name: range_stats
-- Indexes: {table}__last, {table}__lease, the primary keys.
-- Locks: none under READ_COMMITTED_SNAPSHOT, but for the two READCOMMITTEDLOCK that wait for a claim. Without that
-- option it waits for transactions that finish messages. READPAST passes over messages in flight.
declare @next bigint;
declare @end bigint;
declare @last bigint;
declare @first bigint;
select top (1) @next = last_offset + 1
from {ranges} with (index ({table}__last), readcommittedlock)
order by id desc;
select @next = iif(@next > min(first_offset), @next, min(first_offset) + 1)
from {runs} with (readcommittedlock);
select top (1) @end = first_offset + last_id - first_id + 1
from {runs} with (readpast, readcommittedlock)
order by first_offset desc;
select top (1) @last = last_id
from {runs} with (readpast, readcommittedlock)
order by last_id desc;
select top (1) @first = first_offset
from {ranges}
order by id;
select
    case when @end > @next then @end - @next else 0 end
        + (select count_big(*) from {log} with (readpast, readcommittedlock) where id > @last) as ready,
    (
        select coalesce(sum(cast(held.messages - gone.number as bigint)), 0)
        from {ranges} as held
        cross apply (select count(*) as number from openjson(held.left_ids)) as gone
        where held.lease_until is not null
    ) as in_progress,
    (
        select case
            when count(*) < 100000 then coalesce(sum(claimed.finished), 0)
            when sum(claimed.finished) > max(claimed.last_offset) - @first + 1 then sum(claimed.finished)
            else max(claimed.last_offset) - @first + 1
        end
        from (
            select top (100000) last_offset, cast({finished_messages} as bigint) as finished
            from {ranges}
            where messages > 0
            order by id desc
        ) as claimed
    ) as finished,
    (
        select datediff_big(microsecond, message.pushed_at, @now) / 1e6
        from {log} as message with (readpast, readcommittedlock)
        where message.id = coalesce(
            (
                select top (1) run.first_id + @next - run.first_offset
                from {runs} as run
                where run.first_offset <= @next and @next < @end
                order by run.first_offset desc
            ),
            (select min(id) from {log} with (readpast, readcommittedlock) where id > @last)
        )
    ) as oldest_age;

-- name: range_stats_finished
-- Indexes: the primary keys.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that finish messages.
-- READPAST passes over messages in flight.
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
