-- Reads of a queue and of its history.

-- name: until_next
-- Seconds until a message can be popped: 0 if one is ready, null if none is expected; and whether an open transaction
-- has pushed, so that a message may come at any moment. For waiting consumers. Last, for the marks of the next look,
-- the seconds until a lease ends, if no message is ready, and the last id, if the role may know it.
-- Indexes: {table}__ready from :low_water on, {table}__scheduled of the last :since_sweep seconds, {table}__in_progress
-- from :until_lease seconds on; one entry of each, but with dead ones before it: see walks.py.
-- Locks: an advisory one, for the length of a look.
select
    case
        when paused.until is not null then cast(extract(epoch from paused.until - {now}) as float8)
        -- [not limited]
        when look.ready then 0
        -- [end]
        -- [limited]
        when exists (select 1 from {queue} where {free}) then case
            when {room} then {until_room}
            else cast(extract(epoch from
                (select min(lease_until) from {queue} where state = 'in_progress') - {now}
            ) as float8)
        end
        when look.ready then 0
        -- [end]
        else cast(extract(epoch from least(
            -- [expires grouped]
            (select min(expires_at) from {queue} where {waiting}),
            -- [end]
            (select min(due_at) from {queue} where state = 'scheduled' and due_at > {since_sweep}),
            leased.until
        ) - {now}) as float8)
    end as seconds,
    paused.until is not null as paused,
    case when pg_try_advisory_lock({pushing_lock}) then not pg_advisory_unlock({pushing_lock}) else true end as pushing
    -- [limited]
    , exists (select 1 from {queue} where {free}) and not ({room} and {until_room} <= 0) as held
    -- [end]
    , cast(extract(epoch from leased.until - {now}) as float8) as lease,
    case when has_sequence_privilege({ids}, 'usage') then pg_sequence_last_value({ids}) end as last_id
from (select max(until) as until from {paused} where name = '{table}' and until > {now}) as paused
cross join lateral (
    -- [not limited]
    select exists (select 1 from {queue} where state = 'ready'{above_mark}){or_noted} as ready
    -- [end]
    -- [limited]
    select false{or_noted} as ready
    -- [end]
    offset 0 -- otherwise it is evaluated for each reference
) as look
cross join lateral (
    select min(lease_until) as until
    from {queue}
    where state = 'in_progress' and lease_until > {from_lease} and paused.until is null and not look.ready
) as leased;

-- name: lost
-- Index: {table}__finished. Locks: none.
select
    {history_columns}
from {history}
where finished_at is null and id > :after and popped_at <= {now} - cast(:age as float8) * interval '1 second'
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
    (
        select cast(extract(epoch from {now} - pushed_at) as float8)
        from {queue} where state = 'ready' order by id limit 1
    );

-- name: stats_history
-- How many finished messages are in the history: counted below 100,000, and from there on as the planner estimates it,
-- by the rows on a page that autovacuum last found and the pages that there are. Index: {table}__finished, for 100,000
-- entries. Locks: none.
select case when counted < 100000 then counted else greatest(counted, (
    select cast(reltuples / nullif(relpages, 0) * (
        pg_relation_size(oid) / cast(current_setting('block_size') as integer)
    ) as bigint)
    from pg_class where oid = cast('{history}' as regclass)
)) end
from (
    select count(*) as counted from (select 1 from {history} where finished_at is not null limit 100000) as few
) as counts;

-- name: stats_lost
-- Index: {table}__finished, of which it reads what has no time. Locks: none.
select producer, consumer, count(*) as lost
from {history}
where finished_at is null and popped_at <= {now} - cast(:age as float8) * interval '1 second'
group by producer, consumer;

-- name: stats_finished
-- Index: {table}__finished. Locks: none.
select
    producer,
    consumer,
    cast(extract(epoch from first_popped_at - pushed_at) as float8) as wait,
    cast(extract(epoch from finished_at - popped_at) as float8) as run,
    attempts,
    cast(extract(epoch from {now} - finished_at) as float8) as ago
from {history}
where finished_at > {now} - cast(:age as float8) * interval '1 second' and finished_at <= {now} and outcome is null
order by finished_at desc
limit :n;

-- name: stats_failed
-- Indexes: those of the states; {table}__finished. Locks: none.
select error ->> 'consumer' as consumer, cast(extract(epoch from {now} - failed_at) as float8) as ago
from (
    (select errors from {queue} where state = 'ready' limit :live)
    union all
    (select errors from {queue} where state = 'scheduled' order by due_at desc limit :live)
    union all
    (select errors from {queue} where state = 'in_progress' order by lease_until desc limit :live)
    union all
    (select errors from {queue} where state = 'dead' order by id desc limit :live)
    union all
    (select errors from {queue} where state = 'blocked' limit :live)
    union all
    (
        select errors from {history}
        where finished_at > {now} - cast(:age as float8) * interval '1 second' and finished_at <= {now}
        order by finished_at desc
        limit :n
    )
) as message
cross join lateral jsonb_array_elements(message.errors) as error
cross join lateral cast(error ->> 'at' as timestamptz) as failed_at
where failed_at > {now} - cast(:age as float8) * interval '1 second' and failed_at <= {now};

-- name: stats_pushed
-- Index: the primary keys, backwards, for :n rows each: no index has the time of a push, but ids rise with it.
-- Locks: none.
select producer, cast(extract(epoch from {now} - pushed_at) as float8) as ago, count(*) as pushed
from (
    select producer, pushed_at
    from (
        (select id, producer, pushed_at from {queue} order by id desc limit :n)
        union all
        (select id, producer, pushed_at from {history} order by id desc limit :n)
    ) as pushed
    order by id desc
    limit :n
) as newest
where pushed_at > {now} - cast(:age as float8) * interval '1 second' and pushed_at <= {now}
group by producer, pushed_at;

-- name: stats_expired
-- Index: {table}__expired. Locks: none.
select count(*) from (select 1 from {history} where outcome = 'expired' limit 100000) as few;

-- name: archivable
-- Index: the primary key. Locks: none.
select
    {history_columns},
    -- [results]
    (select result from {results} as given where given.id = message.id) as result
    -- [end]
    -- [not results]
    cast(null as json) as result
    -- [end]
from {history} as message
where id between :low and :high and finished_at <= :until
order by id
limit :n;
