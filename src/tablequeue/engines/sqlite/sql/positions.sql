-- The position of a subscription and its progress: read it, and move it.

-- name: range_seek
-- The row has no messages. Locks: the database.
insert into {ranges} (first_offset, last_offset, messages, ids_sum, popped_at, finished_at)
values (:start, :start - 1, 0, 0, {now}, {now});

-- name: range_absorb
-- A message before :start that some consumer has had stays, and so does one that the log does not have any more.
-- Index: the primary keys; all detached messages are read. Locks: the database. In one transaction with range_seek.
delete from {queue}
where (:force or state <> 'in_progress')
    and (first_popped_at is null or (id >= :start and id in (select id from {log})));

-- name: range_end_leases
-- Index: {table}__lease. Locks: the database. In one transaction with range_seek.
update {ranges} set lease_until = {now} where lease_until > {now} and last_offset >= :start;

-- name: range_remaining
-- Indexes: {table}__lease, the primary keys; all detached messages are read. Locks: none.
select
    (select count(*) from {ranges} where lease_until is not null and last_offset >= :start)
    + (
        select count(*) from {queue}
        where first_popped_at is null or (id >= :start and id in (select id from {log}))
    );

-- name: range_note
-- Indexes: the primary key, {table}__lease. Locks: the database.
insert into {ranges} (first_offset, last_offset, messages, ids_sum, consumer, popped_at, finished_at)
select
    last_offset + 1, :start - 1, :start - 1 - last_offset, 0, :consumer, {now} - cast(:age * 1000000 as integer), {now}
from (select last_offset from {ranges} order by id desc limit 1)
where last_offset + 1 < :start and not exists (select 1 from {ranges} where lease_until is not null);
select count(*) from {ranges} where lease_until is not null;

-- name: range_stats
-- Indexes: the primary keys, {table}__lease. Locks: none.
select
    max(0, coalesce((select max(id) from {log}), 0) - next + 1),
    (
        select coalesce(sum(messages - json_array_length(coalesce(left_ids, '[]'))), 0)
        from {ranges} where lease_until is not null
    ),
    (
        select case
            when count(*) < 100000 then coalesce(sum(finished), 0)
            else max(sum(finished), max(last_offset) - (select first_offset from {ranges} order by id limit 1) + 1)
        end
        from (
            select last_offset, {finished_messages} as finished
            from {ranges} where messages > 0 order by id desc limit 100000
        )
    ),
    (select ({now} - pushed_at) / 1e6 from {log} where id >= next order by id limit 1)
from (
    select max(last_offset + 1, coalesce((select min(id) from {log}), 0)) as next
    from {ranges} order by id desc limit 1
);

-- name: range_stats_finished
-- Index: the primary keys. Locks: none.
with spans as materialized (
    select
        consumer, popped_at, finished_at, left_ids, apart_ids, first_offset, last_offset, finished,
        sum(finished) over (order by finished_at desc rows unbounded preceding) as so_far
    from (
        select *, {finished_messages} as finished
        from {ranges}
        where id >= (select min(id) from (select id from {ranges} order by id desc limit :n))
    )
    where finished > 0 and finished_at > {now} - cast(:age * 1000000 as integer) and finished_at <= {now}
)
select
    producer,
    consumer,
    (popped_at - pushed_at) / 1e6 as wait,
    (finished_at - popped_at) / 1e6 as run,
    1 as attempts,
    ({now} - finished_at) / 1e6 as ago
from spans
join {log} as log on log.id between first_offset and last_offset
where so_far - finished < :n
    and (left_ids is null or log.id in (select value from json_each(left_ids)))
    and (apart_ids is null or log.id not in (select value from json_each(apart_ids)))
order by finished_at desc
limit :n;
