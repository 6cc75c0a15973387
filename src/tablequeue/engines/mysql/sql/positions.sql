-- The position of a subscription and its progress: read it, and move it.

-- name: range_floor
-- Indexes: {table}__lease, the primary key. Locks: none.
select
    (select min(first_offset) from {ranges} force index ({table}__lease) where lease_until is not null),
    last_offset + 1
from {ranges} order by id desc limit 1;

-- name: range_seek
-- This changes the row that range_wait has added. Locks: the row.
update {ranges}
set first_offset = :start, last_offset = :start - 1, popped_at = {now}, finished_at = {now}
where id = last_insert_id();

-- name: range_absorb
-- A message before :start that some consumer has had stays, and so does one that the log does not have any more. Found,
-- locked by their ids, deleted, as in purge. Those that are locked are asked again: a consumer may have had one since
-- it was found. Indexes: the primary keys, runs by last_id; all detached messages are read.
-- Locks: the rows; locked rows are skipped, and range_remaining finds them. In one transaction with range_seek.
-- name: range_absorb.find
select id
from {queue} as message force index (primary)
where (:force or state <> 'in_progress') and (first_popped_at is null or exists (
        select 1
        from {runs} as run
        where run.last_id = (select min(last_id) from {runs} where last_id >= message.id)
            and first_id <= message.id and first_offset + message.id - first_id >= :start
            and first_offset > (select min(first_offset) from {runs})
    ));
-- name: range_absorb.lock
select message.id
from {given} straight_join {queue} as message force index (primary) on message.id = given.id
where (:force or state <> 'in_progress') and (first_popped_at is null or exists (
        select 1
        from {runs} as run
        where run.last_id = (select min(last_id) from {runs} where last_id >= message.id)
            and first_id <= message.id and first_offset + message.id - first_id >= :start
            and first_offset > (select min(first_offset) from {runs})
    ))
for update skip locked;
-- name: range_absorb.delete
delete {queue} from {given} straight_join {queue} force index (primary) on {queue}.id = given.id;

-- name: range_wait
-- Let no claim of a subscription run until the transaction ends: add a range without messages at the position, whose id
-- the next claim would have. If another session has claimed meanwhile, that is a duplicate key, and it is repeated.
-- Index: the primary key. Locks: the new row.
insert into {ranges} (id, first_offset, last_offset, messages, ids_sum, pieces, popped_at, finished_at)
select last_insert_id(id + 1), last_offset + 1, last_offset, 0, 0, '[]', utc_timestamp(6), utc_timestamp(6)
from (select id, last_offset from {ranges} order by id desc limit 1) as last;

-- name: range_end_leases
-- Index: {table}__lease. Locks: the rows; locked rows are skipped. In one transaction with range_seek.
-- name: range_end_leases.find
select id
from {ranges} force index ({table}__lease)
where lease_until > {now} and last_offset >= :start
for update skip locked;
-- name: range_end_leases.end
update {given} straight_join {ranges} force index (primary) on {ranges}.id = given.id
set lease_until = {now};

-- name: range_remaining
-- Indexes: {table}__lease, the primary keys, that of the runs by last_id; all detached messages are read. Locks: none.
select count(*) from {ranges} force index ({table}__lease) where lease_until is not null and last_offset >= :start;
select count(*)
from {queue} as message force index (primary)
where first_popped_at is null or exists (
        select 1
        from {runs} as run
        where run.last_id = (select min(last_id) from {runs} where last_id >= message.id)
            and first_id <= message.id and first_offset + message.id - first_id >= :start
            and first_offset > (select min(first_offset) from {runs})
    );

-- name: range_note
-- This changes the row that range_wait has added. It gets the consumer also if nothing new was read: a range without a
-- consumer is a seek. Indexes: {table}__lease, the primary keys.
-- Locks: the row.
update {ranges} as noted
join (
    select count(*) as ranges from {ranges} force index ({table}__lease) where lease_until is not null
) as open on open.ranges = 0
set messages = greatest(:start - noted.first_offset, 0),
    last_offset = greatest(:start, noted.first_offset) - 1,
    consumer = :consumer,
    popped_at = {now} - interval :age second,
    finished_at = {now},
    pieces = coalesce((
        select concat('[', group_concat(
            '[', first_id + greatest(noted.first_offset - run.first_offset, 0), ',',
            least(last_id, first_id + :start - 1 - run.first_offset), ']' order by run.first_offset
        ), ']')
        from {runs} as run
        where run.first_offset < :start and run.first_offset + last_id - first_id >= noted.first_offset
            and noted.first_offset < :start
    ), '[]')
where noted.id = last_insert_id();
select count(*) from {ranges} force index ({table}__lease) where lease_until is not null;

-- name: range_stats
-- The first statement finds the position :start, the :end of the offsets, and the :last_id that has one.
-- Indexes: the primary keys, {table}__lease, that of the runs by last_id. Locks: none.
-- name: range_stats.position
select
    greatest(
        (select last_offset + 1 from {ranges} order by id desc limit 1),
        (select first_offset + 1 from {runs} order by first_offset limit 1)
    ),
    (select first_offset + last_id - first_id + 1 from {runs} order by first_offset desc limit 1),
    (select max(last_id) from {runs});
-- name: range_stats.count
select
    greatest(:end - :start, 0) + (select count(*) from {log} force index (primary) where id > :last_id),
    (
        select cast(coalesce(sum(messages - coalesce(json_length(left_ids), 0)), 0) as signed)
        from {ranges} force index ({table}__lease) where lease_until is not null
    ),
    (
        select cast(case
            when count(*) < 100000 then coalesce(sum(finished), 0)
            else greatest(sum(finished), max(last_offset) - (select first_offset from {ranges} order by id limit 1) + 1)
        end as signed)
        from (
            select last_offset, {finished_messages} as finished
            from {ranges} where messages > 0 order by id desc limit 100000
        ) as claimed
    ),
    (
        select timestampdiff(microsecond, pushed_at, {now}) / 1e6
        from {log}
        where id = case
            when :start < :end then (
                select first_id + :start - first_offset from {runs}
                where first_offset <= :start order by first_offset desc limit 1
            )
            else (select min(id) from {log} where id > :last_id)
        end
    );

-- name: range_last
-- The last range of a subscription, and the offset at which its next claim begins. Index: the primary key. Locks: none.
select id, last_offset + 1 from {ranges} order by id desc limit 1;

-- name: range_stats_finished
-- Index: the primary keys. Locks: none.
with spans as (
    select
        consumer, popped_at, finished_at, left_ids, apart_ids, low, high,
        greatest(high - low + 1 - (messages - finished), 0) as sure,
        sum(greatest(high - low + 1 - (messages - finished), 0))
            over (order by finished_at desc rows unbounded preceding) as so_far
    from {pieces} as piece
    where finished > 0 and finished_at > {now} - interval :age second and finished_at <= {now}
        and range_id >= (select min(id) from (select id from {ranges} order by id desc limit :n) as claimed)
)
select
    producer,
    consumer,
    timestampdiff(microsecond, pushed_at, popped_at) / 1e6 as wait,
    timestampdiff(microsecond, popped_at, finished_at) / 1e6 as run,
    1 as attempts,
    timestampdiff(microsecond, finished_at, {now}) / 1e6 as ago
from spans
straight_join {log} as log force index (primary) on log.id between spans.low and spans.high
where so_far - sure < :n
    and (left_ids is null or json_contains(left_ids, cast(log.id as char)))
    and (apart_ids is null or not json_contains(apart_ids, cast(log.id as char)))
order by finished_at desc
limit :n;
