-- Reads of a queue and of its history.

-- name: peek
-- Index: {table}__state. Locks: none.
select
    {live_columns}
from {queue} force index ({table}__state)
where state = '{state}'{unswept} and id > :after
order by id
limit :n;

-- name: until_next
-- Seconds until a message can be popped: 0 if one is ready, null if none is to come. For consumers that wait.
-- Index: {table}__state, one entry of each state. Locks: none.
select
    case
        when paused.until is not null then timestampdiff(microsecond, {now}, paused.until) / 1e6
        -- [not limited]
        when exists (select 1 from {queue} force index ({table}__state) where state = 'ready'){or_noted} then 0
        -- [else]
        when exists (select 1 from {queue} force index ({claim_index}) where {free}) then case
            when {room} then {until_rate}
            else timestampdiff(microsecond, {now}, (
                select min(sweep_at) from {queue} force index ({table}__state) where state = 'in_progress'
            )) / 1e6
        end
        when false{or_noted} then 0
        -- [end]
        else timestampdiff(microsecond, {now}, least(
            -- [expires grouped]
            coalesce((
                select min(expires_at) from {queue} force index ({table}__expires) where state = 'scheduled'
            ), '9999-01-01'),
            -- [end]
            coalesce((
                select min(sweep_at) from {queue} force index ({table}__state) where state = 'scheduled'
            ), '9999-01-01'),
            coalesce((
                select min(sweep_at) from {queue} force index ({table}__state) where state = 'in_progress'
            ), '9999-01-01')
        )) / 1e6
    end as seconds,
    paused.until is not null as paused
    -- [limited]
    , false as pushing, exists (select 1 from {queue} force index ({claim_index}) where {free})
        and not ({room} and {until_rate} <= 0) as held
    -- [end]
from (select max(until) as until from {paused} where name = '{table}' and until > {now}) as paused;

-- name: lost
-- Index: {table}__finished, which has them by id. Locks: none.
select
    {history_columns}
from {history} force index ({table}__finished)
where finished_at is null and id > :after and popped_at <= {now} - interval :age second
order by id
limit :n;

-- name: stats
-- Exact counts by state, each a range of {table}__state, and the age in seconds of the first ready message.
-- Locks: none.
select
    (select count(*) from {queue} where state = 'ready'),
    (select count(*) from {queue} where state = 'scheduled'),
    (select count(*) from {queue} where state = 'in_progress'),
    (select count(*) from {queue} where state = 'dead'),
    (select count(*) from {queue} where state = 'blocked'),
    (
        select timestampdiff(microsecond, pushed_at, {now}) / 1e6
        from {queue} force index ({table}__state) where state = 'ready' and sweep_at is null order by id limit 1
    );

-- name: stats_history
-- How many finished messages are in the history: counted below 100,000, and from there on as the table's statistics
-- estimate it.
-- Index: {table}__finished, for 100,000 entries. Locks: none.
-- As a whole number: greatest() makes a decimal of the unsigned estimate.
select cast(case when counted < 100000 then counted else greatest(counted, coalesce((
    select table_rows from information_schema.tables
    where table_schema = {database} and table_name = '{table}_history'
), 0)) end as signed)
from (
    select count(*) as counted from (
        select 1 from {history} force index ({table}__finished) where finished_at is not null limit 100000
    ) as few
) as counts;

-- name: stats_lost
-- Index: {table}__finished, of which it reads what has no time. Locks: none.
select producer, consumer, count(*) as lost
from {history} force index ({table}__finished)
where finished_at is null and popped_at <= {now} - interval :age second
group by producer, consumer;

-- name: stats_finished
-- Index: {table}__finished. Locks: none.
select
    producer,
    consumer,
    timestampdiff(microsecond, pushed_at, first_popped_at) / 1e6 as wait,
    timestampdiff(microsecond, popped_at, finished_at) / 1e6 as run,
    attempts,
    timestampdiff(microsecond, finished_at, {now}) / 1e6 as ago
from {history} force index ({table}__finished)
where finished_at > {now} - interval :age second and finished_at <= {now} and outcome is null
order by finished_at desc
limit :n;

-- name: stats_failed
-- Indexes: {table}__state; {table}__finished. Locks: none.
select error.consumer, timestampdiff(microsecond, error.failed_at, {now}) / 1e6 as ago
from (
    (select errors from {queue} force index ({table}__state) where state = 'ready' limit :live)
    union all
    (select errors from {queue} force index ({table}__state) where state = 'scheduled' limit :live)
    union all
    (select errors from {queue} force index ({table}__state) where state = 'in_progress' limit :live)
    union all
    (select errors from {queue} force index ({table}__state) where state = 'dead' order by id desc limit :live)
    union all
    (select errors from {queue} force index ({table}__state) where state = 'blocked' limit :live)
    union all
    (
        select errors from {history} force index ({table}__finished)
        where finished_at > {now} - interval :age second and finished_at <= {now}
        order by finished_at desc
        limit :n
    )
) as message
join json_table(
    message.errors, '$[*]' columns (consumer varchar(512) path '$.consumer', failed_at datetime(6) path '$.at')
) as error
where error.failed_at > {now} - interval :age second and error.failed_at <= {now};

-- name: stats_pushed
-- Index: the primary keys, backwards, for :n rows each: no index has the time of a push, but ids rise with it.
-- Locks: none.
select producer, timestampdiff(microsecond, pushed_at, {now}) / 1e6 as ago, count(*) as pushed
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
where pushed_at > {now} - interval :age second and pushed_at <= {now}
group by producer, pushed_at;

-- name: stats_expired
-- Index: {table}__expired. Locks: none.
select count(*) from (
    select 1 from {history} force index ({table}__expired) where outcome = 'expired' limit 100000
) as few;

-- name: archivable
-- Index: the primary key, forced: by {table}__finished, each of the reads that follow each other would sort all that is
-- old enough.
-- Locks: none.
select
    {history_columns},
    -- [results]
    (select result from {results} as given where given.id = message.id) as result
    -- [else]
    null as result
    -- [end]
from {history} as message force index (primary)
where id between :low and :high and finished_at <= :until
order by id
limit :n;
