-- Reads of a subscription: its ranges of the log, and the messages in them.

-- name: range_peek_ready
-- The first :n messages of the log with an id above :after that no range has, from the position of the subscription on.
-- Of the intervals of ids only the first ones are read, which have so many messages.
-- Indexes: the primary keys, that of the runs by last_id.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that finish messages.
-- READPAST passes over messages in flight.
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

-- name: range_peek_in_progress
-- Indexes: {table}__lease, the primary keys.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that finish messages.
-- READPAST passes over messages in flight.
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

-- name: range_find
-- Indexes: the primary keys, that of the runs by last_id; the ranges are read backwards until one has it.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that finish messages.
-- READPAST passes over messages in flight.
declare @offset bigint;
declare @position bigint;
declare @consumer nvarchar(512);
declare @popped_at datetime2(6);
declare @lease_until datetime2(6);
declare @left_ids varchar(max);
select top (1) @offset = case when first_id <= @id then first_offset + @id - first_id end
from {runs}
where last_id >= @id
order by last_id;
select top (1) @position = last_offset + 1
from {ranges} with (index ({table}__last), readcommittedlock)
order by id desc;
select @position = iif(@position > min(first_offset), @position, min(first_offset) + 1)
from {runs};
select top (1) @consumer = consumer, @popped_at = popped_at, @lease_until = lease_until, @left_ids = left_ids
from {ranges}
where first_offset <= @offset and last_offset >= @offset and @offset < @position
order by id desc;
select
    {history_columns with
        state = state
        lease_until = lease_until}
from (
    select
        {log_columns with
            state = case when @popped_at is null then 'ready' else 'in_progress' end as state
            attempts = case when @popped_at is null then 0 else 1 end as attempts
            consumer = @consumer as consumer
            first_popped_at = @popped_at as first_popped_at
            popped_at = @popped_at as popped_at
            lease_until = @lease_until as lease_until
            finished_at = cast(null as datetime2(6)) as finished_at}
    from {log} with (readpast, readcommittedlock)
    where id = @id
) as found
where @offset is null or @offset >= @position
    or (
        @lease_until is not null
        and not exists (select 1 from openjson(@left_ids) with (id bigint '$') as gone where gone.id = @id)
    );

-- name: range_until_next
-- Seconds until a message can be popped: 0 if one is ready, null if none is expected. For waiting consumers.
-- Indexes: those of the states, {table}__last, {table}__lease, the primary keys; one entry of each, and one for each
-- hole.
-- Locks: none that lasts. READPAST passes over messages in flight, and over what others are finishing.
select
    case
        when paused.until is not null then datediff_big(microsecond, @now, paused.until) / 1e6
        when exists (select 1 from {queue} with (readpast, readcommittedlock) where state = 'ready'){or_noted}
            or exists (
                select 1 from {log} with (readpast, readcommittedlock)
                where id > (select max(last_id) from {runs} with (readpast, readcommittedlock))
            )
            or (
                select top (1) first_offset + last_id - first_id
                from {runs} with (readpast, readcommittedlock)
                order by first_offset desc
            ) > (
                select top (1) last_offset
                from {ranges} with (index ({table}__last), readcommittedlock)
                order by id desc
            )
            or exists (
                select 1
                from {holes} as hole with (readpast, readcommittedlock)
                inner join {log} as message with (forceseek, readpast, readcommittedlock)
                    on message.id between hole.first_id and hole.last_id
            ) then 0e0
        else datediff_big(microsecond, @now, (
            select min(coming.at)
            from (
                select min(due_at) as at from {queue} with (readpast, readcommittedlock) where state = 'scheduled'
                union all
                select min(lease_until) as at
                from {queue} with (readpast, readcommittedlock)
                where state = 'in_progress'
                union all
                select min(lease_until) as at from {ranges} with (readpast, readcommittedlock)
                where lease_until is not null
            ) as coming
        )) / 1e6
    end as seconds,
    iif(paused.until is null, 0, 1) as paused
from (select max(until) as until from {paused} where name = '{table}' and until > @now) as paused;

-- name: range_live
-- The last :n messages with ids from :low to :high that are live, in any state, highest id first: the detached ones,
-- those that ranges in progress hold, and those that no range has. A detached message comes once.
-- Indexes: the primary keys, {table}__lease, that of the runs by last_id.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that finish messages.
-- READPAST passes over messages in flight.
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

-- name: range_live_bounds
-- Indexes: the primary keys, {table}__lease.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that finish messages.
-- READPAST passes over messages in flight.
declare @last bigint;
select @last = max(id)
from {log} with (readpast, readcommittedlock);
select min(low) as low, max(high) as high
from (
    select min(id) as low, max(id) as high from {queue}
    union all
    select low, high from {pieces} as piece where lease_until is not null
    union all
    select low, iif(high < @last, high, @last) from {unclaimed} as unclaimed
) as bounds
where low <= high;

-- name: range_finished
-- Of the intervals of ids only the first ones are read, which have so many finished messages, whatever was read again.
-- Indexes: the primary keys; all ranges are read.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that finish messages.
-- READPAST passes over messages in flight.
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

-- name: range_finished_bounds
-- Indexes: the primary keys, {table}__finished; all ranges are read.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that finish messages.
select min(low) as low, max(high) as high
from (
    select low, high
    from {pieces} as piece
    where finished > 0 and finished_at >= @since and finished_at < @until
    union all
    select min(id), max(id) from {history} where finished_at >= @since and finished_at < @until
) as bounds;
