-- Reads of a subscription: its ranges of the log, and the messages in them.

-- name: range_peek_ready
-- The first :n messages of the log with an id above :after that no range has, from the position of the subscription on.
-- Index: the primary keys. Locks: none.
select
    {log_columns with
        state = 'ready' as state
        attempts = 0 as attempts
        consumer = null as consumer
        first_popped_at = null as first_popped_at
        popped_at = null as popped_at
        finished_at = null as finished_at}
from {log}
where id > :after and id > (select last_offset from {ranges} order by id desc limit 1)
order by id
limit :n;

-- name: range_peek_in_progress
-- Indexes: {table}__lease, the primary key. Locks: none.
select
    {log_columns of log with
        state = 'in_progress' as state
        consumer = consumer
        popped_at = popped_at
        lease_until = lease_until
        finished_at = null as finished_at}
from {ranges} as ranges
join {log} as log on log.id between first_offset and last_offset
where lease_until is not null and log.id > :after
    and log.id not in (select value from json_each(coalesce(left_ids, '[]')))
order by log.id
limit :n;

-- name: range_find
-- Index: the primary keys; the ranges are read backwards until one has it. Locks: none.
select
    {log_columns of log with
        state = case when popped_at is null then 'ready' else 'in_progress' end as state
        attempts = popped_at is not null as attempts
        consumer = consumer
        popped_at = popped_at
        lease_until = lease_until
        finished_at = null as finished_at}
from {log} as log
left join {ranges} as held on held.id = (
    select id from {ranges}
    where :id between first_offset and last_offset
        and :id <= (select last_offset from {ranges} order by id desc limit 1)
    order by id desc
    limit 1
)
where log.id = :id and (
    :id > (select last_offset from {ranges} order by id desc limit 1)
    or (lease_until is not null and :id not in (select value from json_each(coalesce(left_ids, '[]'))))
);

-- name: range_until_next
-- Seconds until a message can be popped: 0 if one is ready, null if none is to come. For consumers that wait.
-- Indexes: those of the states, {table}__lease, the primary keys; one entry of each. Locks: none.
select
    case
        when paused.until is not null then (paused.until - {now}) / 1e6
        when exists (select 1 from {queue} where state = 'ready')
            or (select max(id) from {log}) > (select last_offset from {ranges} order by id desc limit 1) then 0
        else (min(
            coalesce((select min(due_at) from {queue} where state = 'scheduled'), 9e18),
            coalesce((select min(lease_until) from {queue} where state = 'in_progress'), 9e18),
            coalesce((select min(lease_until) from {ranges} where lease_until is not null), 9e18)
        ) - {now}) / 1e6
    end as seconds,
    paused.until is not null as paused
from (select max(until) as until from {paused} where name = '{table}' and until > {now}) as paused;

-- name: range_live
-- The last :n messages with ids from :low to :high that are live, in any state, highest id first: the detached ones,
-- those that ranges in progress hold, and those that no range has. A detached message comes once.
-- Indexes: the primary keys, {table}__lease. Locks: none.
-- With max() the other columns are those of the row that has the maximum.
select
    {live_columns with
        attempts = max(attempts) as attempts
        finished_at = null as finished_at}
from (
    select * from (
        select
            {queue_row without token}
        from {queue}
        where id between :low and :high
        order by id desc
        limit :n
    )
    union all
    select
        {queue_row of log without token with
            state = 'in_progress'
            attempts = 1
            priority = 0
            due_at = null
            first_popped_at = popped_at
            popped_at = popped_at
            lease_until = lease_until
            dedup_key = null
            consumer = consumer
            errors = null}
    from {ranges} as ranges
    join {log} as log on log.id between max(first_offset, :low) and min(last_offset, :high)
    where lease_until is not null and log.id not in (select value from json_each(coalesce(left_ids, '[]')))
    union all
    select * from (
        select
            {queue_row without token with
                state = 'ready'
                attempts = 0
                priority = 0
                due_at = null
                first_popped_at = null
                popped_at = null
                lease_until = null
                dedup_key = null
                consumer = null
                errors = null}
        from {log}
        where id between :low and :high and id > (select last_offset from {ranges} order by id desc limit 1)
        order by id desc
        limit :n
    )
) as live
group by id
order by id desc
limit :n;

-- name: range_live_bounds
-- Indexes: the primary keys, {table}__lease. Locks: none.
select min(low), max(high)
from (
    select min(id) as low, max(id) as high from {queue}
    union all
    select min(first_offset), max(last_offset) from {ranges} where lease_until is not null
    union all
    select min(id), max(id) from {log} where id > (select last_offset from {ranges} order by id desc limit 1)
) as bounds;

-- name: range_finished
-- Of the ranges only the first ones are read into, which have so many finished messages, whatever was read again.
-- Index: the primary keys; all ranges are read. Locks: none.
with spans as materialized (
    select
        consumer, popped_at, finished_at, left_ids, apart_ids, messages - {finished_messages} as others,
        max(first_offset, :low) as low, min(last_offset, :high) as high
    from {ranges}
    where {finished_messages} > 0 and (lease_until is null or not :final)
        and finished_at >= :since and finished_at < :until
        and first_offset <= :high and last_offset >= :low
), counted as (
    select low, sure, sum(sure) over (order by low desc rows unbounded preceding) as so_far
    from (select low, max(high - low + 1 - others, 0) as sure from spans) as each_one
), reach as (
    select min(low) as low
    from counted
    where so_far - sure < :n * (1 + (select count(*) from {ranges} where messages = 0))
)
-- With max() the other columns are those of the row that has the maximum.
select
    {log_columns with
        state = state
        attempts = attempts
        priority = priority
        dedup_key = dedup_key
        due_at = due_at
        first_popped_at = first_popped_at
        popped_at = max(popped_at) as popped_at
        errors = errors}
from (
    select
        {log_columns}
    from spans
    join {log} as log on log.id between spans.low and spans.high
    where high >= (select low from reach)
        and (left_ids is null or log.id in (select value from json_each(left_ids)))
        and (apart_ids is null or log.id not in (select value from json_each(apart_ids)))
    union all
    select * from (
        select
            {history_columns}
        from {history}
        where id between :low and :high and finished_at >= :since and finished_at < :until
        order by id desc
        limit :n
    )
) as finished
group by id
order by id desc
limit :n;

-- name: range_finished_bounds
-- Indexes: the primary keys, {table}__finished; all ranges are read. Locks: none.
select max(min(low), (select min(id) from {log})), max(high)
from (
    select first_offset as low, last_offset as high
    from {ranges}
    where {finished_messages} > 0 and finished_at >= :since and finished_at < :until
    union all
    select min(id), max(id) from {history} where finished_at >= :since and finished_at < :until
) as bounds;
