-- The position of a subscription and its progress: read it, and move it.

-- name: range_seek
-- The row has no messages. Locks: none.
insert into {ranges} (first_offset, last_offset, messages, ids_sum, popped_at, finished_at)
values (
    cast(:start as bigint), cast(:start as bigint) - 1, 0, 0, {now}, {now}
);

-- name: range_absorb
-- A message before :start that some consumer has had stays, and so does one that the log does not have any more.
-- Indexes: the primary keys, runs by last_id; all detached messages are read.
-- Locks: the rows; locked rows are skipped, and range_remaining finds them. In one transaction with range_seek.
delete from {queue}
where id = any(array(
    select id
    from {queue} as message
    where (cast(:force as boolean) or state <> 'in_progress')
        and (first_popped_at is null or exists (
            select 1
            from (select first_offset, first_id from {runs} where last_id >= message.id order by last_id limit 1) as run
            where first_id <= message.id and first_offset + message.id - first_id >= :start
                and first_offset > (select min(first_offset) from {runs})
        ))
    for update skip locked
));

-- name: range_wait
-- Wait for the lock of a subscription's claims, and hold it until the transaction ends.
select pg_advisory_xact_lock({range_lock});

-- name: range_end_leases
-- Index: {table}__lease. Locks: the rows; locked rows are skipped. In one transaction with range_seek.
update {ranges} set lease_until = {now}
where id = any(array(
    select id from {ranges} where lease_until > {now} and last_offset >= :start for update skip locked
));

-- name: range_remaining
-- Indexes: {table}__lease, the primary keys, that of the runs by last_id; all detached messages are read. Locks: none.
select
    (select count(*) from {ranges} where lease_until is not null and last_offset >= :start)
    + (
        select count(*)
        from {queue} as message
        where first_popped_at is null or exists (
            select 1
            from (select first_offset, first_id from {runs} where last_id >= message.id order by last_id limit 1) as run
            where first_id <= message.id and first_offset + message.id - first_id >= :start
                and first_offset > (select min(first_offset) from {runs})
        )
    );

-- name: range_note
-- Indexes: the primary key, {table}__lease. Locks: range_wait comes before it, so that it sees the last claim.
with last as (
    select last_offset from {ranges} order by id desc limit 1
), open as (
    select count(*) as ranges from {ranges} where lease_until is not null
), noted as (
    insert into {ranges} (first_offset, last_offset, messages, ids_sum, consumer, popped_at, finished_at)
    select
        last_offset + 1, :start - 1, :start - 1 - last_offset, 0, cast(:consumer as text),
        {now} - cast(:age as float8) * interval '1 second', {now}
    from last
    cross join open
    where last_offset + 1 < :start and open.ranges = 0
)
select ranges from open;

-- name: range_stats
-- Indexes: the primary keys, {table}__lease. Locks: none.
with bounds as (
    select
        greatest(
            (select last_offset + 1 from {ranges} order by id desc limit 1),
            (select min(first_offset) + 1 from {runs})
        ) as next,
        (select first_offset + last_id - first_id + 1 from {runs} order by first_offset desc limit 1) as ends,
        {last_id} as last_id
)
select
    greatest(ends - next, 0) + (select count(*) from {log} where id > bounds.last_id),
    (
        select coalesce(sum(messages - coalesce(cardinality(left_ids), 0)), 0)
        from {ranges} where lease_until is not null
    ),
    (
        select case
            when count(*) < 100000 then coalesce(sum(finished), 0)
            else greatest(sum(finished), max(last_offset) - (select first_offset from {ranges} order by id limit 1) + 1)
        end
        from (
            select last_offset, {finished_messages} as finished
            from {ranges} where messages > 0 order by id desc limit 100000
        ) as claimed
    ),
    (
        select cast(extract(epoch from {now} - pushed_at) as float8)
        from {log}
        where id = coalesce(
            (
                select first_id + bounds.next - first_offset from {runs}
                where first_offset <= bounds.next and bounds.next < bounds.ends order by first_offset desc limit 1
            ),
            (select min(id) from {log} where id > bounds.last_id)
        )
    )
from bounds;

-- name: range_stats_finished
-- Indexes: the primary keys. Locks: none.
with spans as materialized (
    select
        consumer, popped_at, finished_at, left_ids, apart_ids, low, high,
        greatest(high - low + 1 - (messages - finished), 0) as sure,
        sum(greatest(high - low + 1 - (messages - finished), 0))
            over (order by finished_at desc rows unbounded preceding) as so_far
    from {pieces} as piece
    where finished > 0 and finished_at > {now} - cast(:age as float8) * interval '1 second' and finished_at <= {now}
        and range_id >= (select min(id) from (select id from {ranges} order by id desc limit :n) as claimed)
)
select
    producer,
    consumer,
    cast(extract(epoch from popped_at - pushed_at) as float8) as wait,
    cast(extract(epoch from finished_at - popped_at) as float8) as run,
    1 as attempts,
    cast(extract(epoch from {now} - finished_at) as float8) as ago
from spans
cross join lateral (
    select producer, pushed_at
    from {log}
    where id between low and high
        and (left_ids is null or id = any(left_ids)) and (apart_ids is null or id <> all(apart_ids))
    limit :n
) as log
where so_far - sure < :n
order by finished_at desc
limit :n;
