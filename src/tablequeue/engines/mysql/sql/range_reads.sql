-- Reads of a subscription: its ranges of the log, and the messages in them.

-- name: range_peek_ready
-- The messages of :ids, which no range has: the first ones above :after; see range_ready.
-- Index: the primary key. Locks: none.
select
    {log_columns of log with
        state = 'ready' as state
        attempts = 0 as attempts
        consumer = null as consumer
        first_popped_at = cast(null as datetime(6)) as first_popped_at
        popped_at = cast(null as datetime(6)) as popped_at
        finished_at = cast(null as datetime(6)) as finished_at}
from {given} straight_join {log} as log force index (primary) on log.id = given.id
order by log.id;

-- name: range_peek_in_progress
-- Indexes: {table}__lease, the primary key. Locks: none.
select
    {log_columns with
        state = 'in_progress' as state
        lease_until = lease_until
        finished_at = cast(null as datetime(6)) as finished_at}
from {pieces} as piece
straight_join {log} as log force index (primary) on log.id between piece.low and piece.high
where lease_until is not null and log.id > :after
    and (left_ids is null or not json_contains(left_ids, cast(log.id as char)))
order by id
limit :n;

-- name: range_ready
-- The ids of messages of the log that no range of a subscription has: with an offset from the position :start on, in a
-- hole, or above the last id that has an offset. The first statement finds the position and that id, the second one the
-- runs, the third one the holes. The part computes the intervals of ids. Each of them repeats the condition of the last
-- two statements, one of which begins at the lowest id, and one at the highest.
-- Indexes: the primary keys, that of the runs by last_id. Locks: none.
-- name: range_ready.position
select
    greatest(
        (select last_offset + 1 from {ranges} order by id desc limit 1),
        (select first_offset + 1 from {runs} order by first_offset limit 1)
    ),
    (select max(last_id) from {runs});
-- name: range_ready.runs
(
    select first_offset, first_id, last_id
    from {runs} where first_offset <= :start order by first_offset desc limit 1
)
union all
(
    select first_offset, first_id, last_id
    from {runs} where first_offset > :start
);
-- name: range_ready.holes
select first_id, last_id from {holes} where first_id > 0;
-- name: range_ready.first
select id
from {log} force index (primary)
where (id between :low and :high) and pushed_at is not null
order by id
limit :n;
-- name: range_ready.last
select id
from {log} force index (primary)
where (id between :low and :high) and pushed_at is not null
order by id desc
limit :n;

-- name: range_find
-- Indexes: the primary keys, that of the runs by last_id; all ranges are read. Locks: none.
select
    {log_columns of log with
        state = case when held.id is null then 'ready' else 'in_progress' end as state
        attempts = case when held.id is null then 0 else 1 end as attempts
        consumer = consumer
        popped_at = popped_at
        lease_until = lease_until
        finished_at = cast(null as datetime(6)) as finished_at}
from {log} as log
cross join (
    select
        (
            select first_offset + :id - first_id from {runs}
            where first_id <= :id and last_id >= :id order by last_id limit 1
        ) as message_offset,
        greatest(
            (select last_offset + 1 from {ranges} order by id desc limit 1),
            (select first_offset + 1 from {runs} order by first_offset limit 1)
        ) as position
) as place
left join {ranges} as held on held.id = (
    select max(id) from {ranges}
    where place.message_offset between first_offset and last_offset and place.message_offset < place.position
)
where log.id = :id and log.pushed_at is not null and (
    message_offset is null or message_offset >= position
    or (lease_until is not null and (left_ids is null or not json_contains(left_ids, cast(log.id as char))))
);

-- name: range_until_next
-- Seconds until a message can be popped: 0 if one is ready, null if none is to come. For consumers that wait. If it is
-- not 0, the holes tell whether a message was committed late: each repeats the condition of the last statement.
-- Indexes: {table}__state, {table}__lease, the primary keys; one entry of each, and one for each hole. Locks: none.
-- name: range_until_next.look
select
    case
        when paused.until is not null then timestampdiff(microsecond, {now}, paused.until) / 1e6
        when exists (select 1 from {queue} force index ({table}__state) where state = 'ready'){or_noted}
            or (select max(id) from {log}) > (select max(last_id) from {runs})
            or (select first_offset + last_id - first_id from {runs} order by first_offset desc limit 1)
                > (select last_offset from {ranges} order by id desc limit 1) then 0
        else timestampdiff(microsecond, {now}, least(
            coalesce((
                select min(sweep_at) from {queue} force index ({table}__state) where state = 'scheduled'
            ), '9999-01-01'),
            coalesce((
                select min(sweep_at) from {queue} force index ({table}__state) where state = 'in_progress'
            ), '9999-01-01'),
            coalesce((select min(lease_until) from {ranges} where lease_until is not null), '9999-01-01')
        )) / 1e6
    end as seconds,
    paused.until is not null as paused
from (select max(until) as until from {paused} where name = '{table}' and until > {now}) as paused;
-- name: range_until_next.holes
select first_id, last_id from {holes} where first_id > 0;
-- name: range_until_next.late
select id from {log} force index (primary) where id between :low and :high;

-- name: range_live
-- The last :n messages with ids from :low to :high that are live, in any state, highest id first: the detached ones,
-- those that ranges in progress hold, and those that no range has, which are :ids (see range_ready). A detached
-- message comes once.
-- Indexes: the primary keys, {table}__lease, that of the runs by last_id. Locks: none.
with ready as (
    select log.* from {given} straight_join {log} as log force index (primary) on log.id = given.id
)
select
    {live_columns with
        group_key = group_key
        dedup_key = dedup_key
        finished_at = finished_at}
from (
    select
        {live_columns with
            group_key = group_key
            dedup_key = dedup_key
            finished_at = finished_at},
        row_number() over (partition by id order by attempts desc) as place
    from (
        (
            select
                {live_columns}
            from {queue}
            where id between :low and :high
            order by id desc
            limit :n
        )
        union all
        select
            {log_columns with
                state = 'in_progress' as state
                lease_until = lease_until
                finished_at = cast(null as datetime(6)) as finished_at}
        from {pieces} as piece
        straight_join {log} as log force index (primary) on log.id between piece.low and piece.high
        where lease_until is not null and log.id between :low and :high
            and (left_ids is null or not json_contains(left_ids, cast(log.id as char)))
        union all
        select
            {log_columns with
                state = 'ready' as state
                attempts = 0 as attempts
                consumer = null as consumer
                first_popped_at = cast(null as datetime(6)) as first_popped_at
                popped_at = cast(null as datetime(6)) as popped_at
                finished_at = cast(null as datetime(6)) as finished_at}
        from ready
    ) as each_one
) as live
where place = 1
order by id desc
limit :n;

-- name: range_live_bounds
-- Indexes: the primary keys, {table}__lease, that of the runs by last_id. Locks: none.
select min(low), max(high)
from (
    select min(id) as low, max(id) as high from {queue}
    union all
    select low, high from {pieces} as piece where lease_until is not null
    union all
    select low, high from {unclaimed} as unclaimed
    union all
    select min(id), max(id) from {log} where id > (select last_id from {runs} order by last_id desc limit 1)
    union all
    select min(log.id), max(log.id)
    from {holes} as hole
    straight_join {log} as log force index (primary) on log.id between hole.first_id and hole.last_id
    where pushed_at is not null
) as bounds;

-- name: range_finished
-- Of the intervals of ids only the first ones are read, which have so many finished messages, whatever was read again.
-- Indexes: the primary keys; all ranges are read. Locks: none.
with spans as (
    select
        consumer, popped_at, finished_at, left_ids, apart_ids, messages - finished as others,
        greatest(low, :low) as low, least(high, :high) as high
    from {pieces} as piece
    where finished > 0 and (lease_until is null or not :final)
        and finished_at >= :since and finished_at < :until and low <= :high and high >= :low
), counted as (
    select low, sure, sum(sure) over (order by low desc rows unbounded preceding) as so_far
    from (select low, greatest(high - low + 1 - others, 0) as sure from spans) as each_one
), reach as (
    select min(low) as low
    from counted
    where so_far - sure < :n * (1 + (select count(*) from {ranges} where messages = 0))
)
select
    {history_columns with
        state = state
        group_key = group_key
        dedup_key = dedup_key
        lease_until = lease_until}
from (
    select
        {history_columns with
            state = state
            group_key = group_key
            dedup_key = dedup_key
            lease_until = lease_until},
        row_number() over (partition by id order by popped_at desc) as place
    from (
        select
            {log_columns}
        from spans
        straight_join {log} as log force index (primary) on log.id between spans.low and spans.high
        where spans.high >= (select low from reach)
            and (left_ids is null or json_contains(left_ids, cast(log.id as char)))
            and (apart_ids is null or not json_contains(apart_ids, cast(log.id as char)))
        union all
        (
            select
                {history_columns}
            from {history}
            where id between :low and :high and finished_at >= :since and finished_at < :until
            order by id desc
            limit :n
        )
    ) as each_one
) as finished
where place = 1
order by id desc
limit :n;
