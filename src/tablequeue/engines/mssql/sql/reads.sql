-- Reads of a queue and of its history.

-- name: peek
-- Index: {table}__{state}. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option: shared locks while it reads,
-- and it waits for transactions that change a row.
select top (@n)
    {live_columns}
from {queue}
where state = '{state}' and id > @after
order by id;

-- name: find
-- Index: the primary key. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option: shared locks while it reads,
-- and it waits for transactions that change a row.
select
    {live_columns}
from {queue}
where id = @id;

-- name: until_next
-- Seconds until a message can be popped: 0 if one is ready, null if none is expected. For waiting consumers.
-- Indexes: {table}__ready, {table}__scheduled, {table}__in_progress, one entry of each. Locks: none under
-- READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that change one of these rows.
-- [group_limited]
{until_group}
-- [end]
select
    case
        when paused.until is not null then datediff_big(microsecond, @now, paused.until) / 1e6
        -- [not limited]
        when exists (select 1 from {queue} where state = 'ready'){or_noted} then 0e0
        -- [else]
        when exists (select 1 from {queue} where {free}) then case
            when {room} then {until_room}
            else datediff_big(microsecond, @now, (
                select min(lease_until) from {queue} where state = 'in_progress'
            )) / 1e6
        end
        when 1 = 0{or_noted} then 0e0
        -- [end]
        else datediff_big(microsecond, @now, (
            select min(coming.at)
            from (
                -- [expires grouped]
                select min(expires_at) as at from {queue} where {waiting}
                union all
                -- [end]
                select min(due_at) as at from {queue} where state = 'scheduled'
                union all
                select min(lease_until) as at from {queue} where state = 'in_progress'
            ) as coming
        )) / 1e6
    end as seconds,
    iif(paused.until is null, 0, 1) as paused
    -- [limited]
    , 0 as pushing
    , iif(exists (select 1 from {queue} where {free}) and not ({room} and {until_room} <= 0), 1, 0) as held
    -- [end]
from (select max(until) as until from {paused} where name = '{table}' and until > @now) as paused;

-- name: history
-- Index: the primary key. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option: shared locks while it reads,
-- and it waits for transactions that change a row.
select top (@n)
    {history_columns}
from {history}
where id between @low and @high
order by id desc;

-- name: history_bounds
-- Index: the primary key. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option: shared locks while it reads,
-- and it waits for transactions that change a row.
select (select min(id) from {history}) as low, (select max(id) from {history}) as high;

-- name: lost
-- Index: {table}__finished. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option: shared locks while it
-- reads, and it waits for transactions that change a row.
declare @before datetime2(6) = {now_less_age};
select top (@n)
    {history_columns}
from {history}
where finished_at is null and id > @after and popped_at <= @before
order by id;

-- name: stats
-- Counts by state, each from its filtered index, and the age in seconds of the first ready message.
-- Under READ_COMMITTED_SNAPSHOT all counts are of one moment, and it takes no locks. Without that option each count has
-- a moment of its own, and it waits for transactions that change a row.
select
    (select count_big(*) from {queue} where state = 'ready') as ready,
    (select count_big(*) from {queue} where state = 'scheduled') as scheduled,
    (select count_big(*) from {queue} where state = 'in_progress') as in_progress,
    (select count_big(*) from {queue} where state = 'dead') as dead,
    (select count_big(*) from {queue} where state = 'blocked') as blocked,
    (
        select top (1) datediff_big(microsecond, pushed_at, @now) / 1e6
        from {queue} where state = 'ready' order by id
    ) as oldest_age;

-- name: stats_history
-- The number of finished messages in the history. Up to 100,000 are counted; above it is the server's own number of
-- rows, which includes lost messages. A user that may not see this number, as the caller of a procedure, counts all.
-- Index: {table}__finished, for 100,000 entries.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option: shared locks while it reads, and it waits for
-- transactions that change a row.
select case when counts.counted < 100000 then counts.counted else coalesce(
    (select sum(rows) from sys.partitions where object_id = object_id(N'{history}') and index_id in (0, 1)),
    (select count_big(*) from {history} where finished_at is not null)
) end as finished
from (
    select count_big(*) as counted from (
        select top (100000) finished_at from {history} where finished_at is not null
    ) as few
) as counts;

-- name: stats_lost
-- Index: {table}__finished, of which it reads what has no time. Locks: none under READ_COMMITTED_SNAPSHOT. Without that
-- option: shared locks while it reads, and it waits for transactions that change a row.
declare @before datetime2(6) = {now_less_age};
select producer, consumer, count_big(*) as lost
from {history}
where finished_at is null and popped_at <= @before
group by producer, consumer;

-- name: stats_finished
-- Index: {table}__finished. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option: shared locks while it
-- reads, and it waits for transactions that change a row.
declare @since datetime2(6) = {now_less_age};
select top (@n)
    producer,
    consumer,
    datediff_big(microsecond, pushed_at, first_popped_at) / 1e6 as wait,
    datediff_big(microsecond, popped_at, finished_at) / 1e6 as run,
    attempts,
    datediff_big(microsecond, finished_at, @now) / 1e6 as ago
from {history}
where finished_at > @since and finished_at <= @now and outcome is null
order by finished_at desc;

-- name: stats_failed
-- Indexes: those of the states; {table}__finished. Locks: none under READ_COMMITTED_SNAPSHOT. Without
-- that option: shared locks while it reads, and it waits for transactions that change a row.
declare @since datetime2(6) = {now_less_age};
select error.consumer, datediff_big(microsecond, error.failed_at, @now) / 1e6 as ago
from (
    select errors from (select top (@live) errors from {queue} where state = 'ready') as ready
    union all
    select errors from (
        select top (@live) errors from {queue} where state = 'scheduled' order by due_at desc
    ) as scheduled
    union all
    select errors from (
        select top (@live) errors from {queue} where state = 'in_progress' order by lease_until desc
    ) as in_progress
    union all
    select errors from (select top (@live) errors from {queue} where state = 'dead' order by id desc) as dead
    union all
    select errors from (select top (@live) errors from {queue} where state = 'blocked') as blocked
    union all
    select errors from (
        select top (@n) errors from {history}
        where finished_at > @since and finished_at <= @now
        order by finished_at desc
    ) as finished
) as message
cross apply openjson(message.errors) with (consumer nvarchar(512) '$.consumer', failed_at datetime2(6) '$.at') as error
where error.failed_at > @since and error.failed_at <= @now;

-- name: stats_pushed
-- Index: the primary keys, backwards, for :n rows each: no index has the time of a push, but ids rise with it.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option: shared locks while it reads, and it waits for
-- transactions that change a row.
declare @since datetime2(6) = {now_less_age};
select producer, datediff_big(microsecond, pushed_at, @now) / 1e6 as ago, count_big(*) as pushed
from (
    select top (@n) producer, pushed_at
    from (
        select id, producer, pushed_at from (
            select top (@n) id, producer, pushed_at from {queue} order by id desc
        ) as live
        union all
        select id, producer, pushed_at from (
            select top (@n) id, producer, pushed_at from {history} order by id desc
        ) as ended
    ) as pushed
    order by id desc
) as newest
where pushed_at > @since and pushed_at <= @now
group by producer, pushed_at;

-- name: stats_expired
-- Index: {table}__expired. Locks: none.
select count_big(*) as expired from (
    select top (100000) finished_at from {history} where outcome = 'expired'
) as few;

-- name: live
-- Index: the primary key. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option: shared locks while it reads,
-- and it waits for transactions that change a row.
select top (@n)
    {live_columns}
from {queue}
where id between @low and @high
order by id desc;

-- name: live_bounds
-- Index: the primary key. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option: shared locks while it reads,
-- and it waits for transactions that change a row.
select (select min(id) from {queue}) as low, (select max(id) from {queue}) as high;

-- name: finished
-- Indexes: the primary key, {table}__finished. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option: shared
-- locks while it reads, and it waits for transactions that change a row.
select top (@n)
    {history_columns}
from {history}
where id between @low and @high and finished_at >= @since and finished_at < @until
order by id desc;

-- name: finished_bounds
-- Index: {table}__finished. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option: shared locks while it
-- reads, and it waits for transactions that change a row.
select min(id) as low, max(id) as high
from {history}
where finished_at >= @since and finished_at < @until;

-- name: archivable
-- Index: the primary key. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option: shared locks while it reads,
-- and it waits for transactions that change a row.
select top (@n)
    {history_columns},
    -- [results]
    (select result from {results} as given where given.id = message.id) as result
    -- [else]
    cast(null as nvarchar(max)) as result
    -- [end]
from {history} as message
where id between @low and @high and finished_at <= @until
order by id;

-- name: holding
-- Indexes: {table}__in_progress; {table}__lease. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option: shared
-- locks while it reads, and it waits for transactions that change a row.
-- RECOMPILE: a filtered index serves a literal, which PARAMETERIZATION FORCED would else replace.
select
    consumer,
    count_big(*) as held,
    min(popped_at) as since,
    max(popped_at) as claimed_at,
    max(lease_until) as lease_until
from {queue} where state = 'in_progress'
group by consumer
-- [ranges]
union all
select consumer, sum(cast(messages as bigint)), min(popped_at), max(popped_at), max(lease_until)
from {ranges} where lease_until is not null
group by consumer
-- [end]
option (recompile);
