-- Reads of a subscription: its ranges of the log, and the messages in them.

-- name: range_peek_ready
-- The first :n messages of the log with an id above :after that no range has, from the position of the subscription on.
-- Of the intervals of ids only the first ones are read, which have so many messages.
-- Indexes: the primary keys, that of the runs by last_id. Locks: none.
with spans as materialized (
    select greatest(low, :after + 1) as low, high, messages from {unclaimed} as unclaimed where high > :after
), counted as (
    select
        low, high, messages,
        sum(case when messages > 0 then high - low + 1 else 0 end) over (order by low) as so_far
    from spans
)
select
    {log_columns with
        state = 'ready' as state
        attempts = 0 as attempts
        consumer = cast(null as text) as consumer
        first_popped_at = cast(null as timestamptz) as first_popped_at
        popped_at = cast(null as timestamptz) as popped_at
        finished_at = cast(null as timestamptz) as finished_at}
from counted
cross join lateral (select * from {log} where id between low and high order by id limit :n) as log
where so_far - case when messages > 0 then high - low + 1 else 0 end < :n
order by id
limit :n;

-- name: range_peek_in_progress
-- Indexes: {table}__lease, the primary keys. Locks: none.
select
    {log_columns with
        state = 'in_progress' as state
        lease_until = lease_until
        finished_at = cast(null as timestamptz) as finished_at}
from {pieces} as piece
cross join lateral (
    select *
    from {log}
    where id between greatest(low, :after + 1) and high and (left_ids is null or id <> all(left_ids))
    order by id
    limit :n
) as log
where lease_until is not null
order by id
limit :n;

-- name: range_find
-- Indexes: the primary keys, that of the runs by last_id; the ranges are read backwards until one has it. Locks: none.
with message as (
    select log.*, first_offset + log.id - first_id as message_offset
    from {log} as log
    left join {runs} as run on run.last_id = (select min(last_id) from {runs} where last_id >= :id)
        and first_id <= :id
    where log.id = :id and not exists (select from {parts} where :id between first_id and last_id)
), next as (
    select greatest(last_offset + 1, (select min(first_offset) + 1 from {runs})) as position
    from {ranges} order by id desc limit 1
), held as (
    select consumer, popped_at, lease_until, left_ids
    from {ranges}
    where (select message_offset from message) between first_offset and last_offset
        and (select message_offset from message) < (select position from next)
    order by id desc
    limit 1
)
select
    {log_columns with
        state = case when popped_at is null then 'ready' else 'in_progress' end as state
        attempts = case when popped_at is null then 0 else 1 end as attempts
        lease_until = lease_until
        finished_at = cast(null as timestamptz) as finished_at}
from message
cross join next
left join held on true
where message_offset is null or message_offset >= position
    or (lease_until is not null and (left_ids is null or id <> all(left_ids)));

-- name: range_until_next
-- Seconds until a message can be popped: 0 if one is ready, null if none is expected; and whether an open transaction
-- has pushed, so that a message may come at any moment. For waiting consumers.
-- Indexes: those of the states, {table}__lease, the primary keys; one entry of each, and one for each hole.
-- Locks: an advisory one, for the length of a look.
select
    case
        when paused.until is not null then cast(extract(epoch from paused.until - {now}) as float8)
        when exists (select 1 from {queue} where state = 'ready'){or_noted}
            or exists (select 1 from {log} where id > {last_id})
            or (select first_offset + last_id - first_id from {runs} order by first_offset desc limit 1)
                > (select last_offset from {ranges} order by id desc limit 1)
            or exists (
                select 1 from {holes} as hole
                where exists (select 1 from {log} where id between hole.first_id and hole.last_id)
            ) then 0
        else cast(extract(epoch from least(
            (select min(due_at) from {queue} where state = 'scheduled'),
            (select min(lease_until) from {queue} where state = 'in_progress'),
            (select min(lease_until) from {ranges} where lease_until is not null)
        ) - {now}) as float8)
    end as seconds,
    paused.until is not null as paused,
    case when pg_try_advisory_lock({pushing_lock}) then not pg_advisory_unlock({pushing_lock}) else true end as pushing
from (select max(until) as until from {paused} where name = '{table}' and until > {now}) as paused;

-- name: range_live
-- The last :n messages with ids from :low to :high that are live, in any state, highest id first: the detached ones,
-- those that ranges in progress hold, and those that no range has. A detached message comes once.
-- Indexes: the primary keys, {table}__lease, that of the runs by last_id. Locks: none.
with spans as materialized (
    select greatest(low, :low) as low, least(high, :high) as high, messages
    from {unclaimed} as unclaimed
    where high >= :low and low <= :high
), counted as (
    select
        low, high, messages,
        sum(case when messages > 0 then high - low + 1 else 0 end) over (order by low desc) as so_far
    from spans
)
select distinct on (id) *
from (
    select
        {live_columns}
    from {queue}
    where id between :low and :high
    union all
    select
        {log_columns with
            state = 'in_progress' as state
            lease_until = lease_until
            finished_at = cast(null as timestamptz) as finished_at}
    from {pieces} as piece
    cross join lateral (
        select *
        from {log}
        where id between greatest(low, :low) and least(high, :high) and (left_ids is null or id <> all(left_ids))
        order by id desc
        limit :n
    ) as log
    where lease_until is not null
    union all
    select
        {log_columns with
            state = 'ready' as state
            attempts = 0 as attempts
            consumer = cast(null as text) as consumer
            first_popped_at = cast(null as timestamptz) as first_popped_at
            popped_at = cast(null as timestamptz) as popped_at
            finished_at = cast(null as timestamptz) as finished_at}
    from counted
    cross join lateral (select * from {log} where id between low and high order by id desc limit :n) as log
    where so_far - case when messages > 0 then high - low + 1 else 0 end < :n
) as live
order by id desc, attempts desc
limit :n;

-- name: range_live_bounds
-- Indexes: the primary keys, {table}__lease. Locks: none.
select min(low), max(high)
from (
    select min(id) as low, max(id) as high from {queue}
    union all
    select low, high from {pieces} as piece where lease_until is not null
    union all
    select low, least(high, (select max(id) from {log})) from {unclaimed} as unclaimed
) as bounds
where low <= high;

-- name: range_finished
-- Of the intervals of ids only the first ones are read, which have so many finished messages, whatever was read again.
-- Indexes: the primary keys, that of the runs by last_id; all ranges are read. Locks: none.
with spans as materialized (
    select
        consumer, popped_at, finished_at, left_ids, apart_ids, messages - finished as others,
        greatest(low, :low) as low, least(high, :high) as high
    from {pieces} as piece
    where finished > 0 and (lease_until is null or not cast(:final as boolean))
        and finished_at >= :since and finished_at < :until and low <= :high and high >= :low
        and first_offset <= (
            select max(first_offset + last_id - first_id) from {runs} where last_id >= :low and first_id <= :high
        )
        and last_offset >= (select min(first_offset) from {runs} where last_id >= :low and first_id <= :high)
), counted as (
    select low, sure, sum(sure) over (order by low desc rows unbounded preceding) as so_far
    from (select low, greatest(high - low + 1 - others, 0) as sure from spans) as each_one
), reach as (
    select min(low) as low
    from counted
    where so_far - sure < :n * (1 + (select count(*) from {ranges} where messages = 0))
)
select distinct on (id) *
from (
    select
        {log_columns}
    from spans
    cross join lateral (
        select *
        from {log}
        where id between low and high
            and (left_ids is null or id = any(left_ids)) and (apart_ids is null or id <> all(apart_ids))
        order by id desc
        limit :n
    ) as log
    where high >= (select low from reach)
    union all
    (
        select
            {history_columns}
        from {history}
        where id between :low and :high and finished_at >= :since and finished_at < :until
        order by id desc
        limit :n
    )
) as finished
order by id desc, popped_at desc
limit :n;
