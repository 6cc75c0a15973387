-- Reads of a queue and of its history.

-- name: until_next
-- Seconds until a message can be popped: 0 if one is ready, null if none is to come. For consumers that wait.
-- Indexes: {table}__ready, {table}__scheduled, {table}__in_progress, one entry of each. Locks: none.
select
    case
        when paused.until is not null then (paused.until - {now}) / 1e6
        -- [not limited]
        when exists (select 1 from {queue} where state = 'ready') then 0
        -- [else]
        when exists (select 1 from {queue} where {free}) then case
            when {room} then {until_room}
            else ((select min(lease_until) from {queue} where state = 'in_progress') - {now}) / 1e6
        end
        -- [end]
        else (min(
            -- [expires grouped]
            coalesce((select min(expires_at) from {queue} where {waiting}), 9e18),
            -- [end]
            coalesce((select min(due_at) from {queue} where state = 'scheduled'), 9e18),
            coalesce((select min(lease_until) from {queue} where state = 'in_progress'), 9e18)
        ) - {now}) / 1e6
    end as seconds,
    paused.until is not null as paused
    -- [limited]
    , 0 as pushing, exists (select 1 from {queue} where {free}) and not ({room} and {until_room} <= 0) as held
    -- [end]
from (select max(until) as until from {paused} where name = '{table}' and until > {now}) as paused;

-- name: lost
-- Index: {table}__finished. Locks: none.
select
    {history_columns}
from {history}
where finished_at is null and id > :after and popped_at <= {now} - cast(:age * 1000000 as integer)
order by id
limit :n;

-- name: stats
-- Exact counts by state, each from its partial index, and the age in seconds of the first ready message.
-- Locks: none.
select
    (select count(*) from {queue} where state = 'ready'),
    (select count(*) from {queue} where state = 'scheduled'),
    (select count(*) from {queue} where state = 'in_progress'),
    (select count(*) from {queue} where state = 'dead'),
    (select count(*) from {queue} where state = 'blocked'),
    (select ({now} - pushed_at) / 1e6 from {queue} where state = 'ready' order by id limit 1);

-- name: stats_history
-- How many finished messages are in the history: counted below 100,000, and from there on the span of their ids, which
-- has those in it that left otherwise, or are still in the queue. Indexes: {table}__finished, for 100,000 entries; the
-- primary key. Locks: none.
select case when counted < 100000 then counted else max(
    counted, (select max(id) from {history}) - (select min(id) from {history}) + 1
) end
from (select count(*) as counted from (select 1 from {history} where finished_at is not null limit 100000)) as counts;

-- name: stats_lost
-- Index: {table}__finished, of which it reads what has no time. Locks: none.
select producer, consumer, count(*) as lost
from {history}
where finished_at is null and popped_at <= {now} - cast(:age * 1000000 as integer)
group by producer, consumer;

-- name: stats_finished
-- Index: {table}__finished. Locks: none.
select
    producer,
    consumer,
    (first_popped_at - pushed_at) / 1e6 as wait,
    (finished_at - popped_at) / 1e6 as run,
    attempts,
    ({now} - finished_at) / 1e6 as ago
from {history}
where finished_at > {now} - cast(:age * 1000000 as integer) and finished_at <= {now} and outcome is null
order by finished_at desc
limit :n;

-- name: stats_failed
-- Indexes: those of the states; {table}__finished. Locks: none.
select
    json_extract(error.value, '$.consumer') as consumer,
    ({now} - json_extract(error.value, '$.at')) / 1e6 as ago
from (
    select * from (select errors from {queue} where state = 'ready' limit :live)
    union all
    select * from (select errors from {queue} where state = 'scheduled' order by due_at desc limit :live)
    union all
    select * from (select errors from {queue} where state = 'in_progress' order by lease_until desc limit :live)
    union all
    select * from (select errors from {queue} where state = 'dead' order by id desc limit :live)
    union all
    select * from (select errors from {queue} where state = 'blocked' limit :live)
    union all
    select * from (
        select errors from {history}
        where finished_at > {now} - cast(:age * 1000000 as integer) and finished_at <= {now}
        order by finished_at desc
        limit :n
    )
) as message, json_each(message.errors) as error
where json_extract(error.value, '$.at') > {now} - cast(:age * 1000000 as integer)
    and json_extract(error.value, '$.at') <= {now};

-- name: stats_pushed
-- Index: the primary keys, backwards, for :n rows each: no index has the time of a push, but ids rise with it.
-- Locks: none.
select producer, ({now} - pushed_at) / 1e6 as ago, count(*) as pushed
from (
    select producer, pushed_at
    from (
        select * from (select id, producer, pushed_at from {queue} order by id desc limit :n)
        union all
        select * from (select id, producer, pushed_at from {history} order by id desc limit :n)
    ) as pushed
    order by id desc
    limit :n
) as newest
where pushed_at > {now} - cast(:age * 1000000 as integer) and pushed_at <= {now}
group by producer, pushed_at;

-- name: stats_expired
-- Index: {table}__expired. Locks: none.
select count(*) from (select 1 from {history} where outcome = 'expired' limit 100000);

-- name: archivable
-- Index: the primary key. Locks: none.
select
    {history_columns},
    -- [results]
    (select result from {results} as given where given.id = message.id) as result
    -- [else]
    null as result
    -- [end]
from {history} as message
where id between :low and :high and finished_at <= :until
order by id
limit :n;
