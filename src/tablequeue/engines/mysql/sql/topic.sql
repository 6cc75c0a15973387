-- The log of a topic: push, give offsets, read, trim.

-- name: topic_push
-- One statement in autocommit: one round trip. The id is the one that the driver gets back with the answer.
-- Locks: none that another transaction waits for. A crash before the commit leaves nothing.
insert into {log} (payload, headers, producer, group_key, pushed_at)
values (:payload, :headers, :producer, :group, {now});

-- name: topic_push_rows
-- A bulk push to the log: the engine repeats the row, up to a megabyte a statement. The rows of one INSERT ... VALUES
-- get consecutive ids in every innodb_autoinc_lock_mode; the first comes back with the answer.
-- More than one statement go in a transaction: all of the batch, or none.
insert into {log} (payload, headers, producer, group_key, pushed_at)
values (:payload, :headers, :producer, :group, :pushed_at);

-- name: sequence
-- Give the messages that have become visible their offsets: those above the last run, and those in the last :n holes.
-- Never in a transaction of a caller: at READ COMMITTED each statement sees what was committed before it began.
-- The first five statements are one round trip, and look without locks: at the number of the changes so far, which the
-- row of the id 0 has in last_id, at the last run, at the holes, and at the islands above the runs: ids without a gap.
-- The sixth one looks into the holes, each of which repeats its condition, from the last to the first. So if it sees a
-- message of a transaction, it sees those with lower ids, too, and gives all of them their offsets in the order of
-- their ids.
-- The part computes the new :runs; :ids, the first ids of the holes that were filled; and :pieces, the new holes. A run
-- that continues the last one makes it longer, unless that one tells what was dropped.
-- The other statements are one transaction and one round trip. If another session has changed something since the look,
-- :version is not the number any more, and they change nothing.
-- Indexes: the primary keys, {table}__last_id. Locks: the row of the id 0, for as long as the server needs. A crash
-- leaves all or nothing.
-- name: sequence.look
select last_id from {holes} where first_id = 0;
select first_offset, first_id, last_id, first_offset > (select min(first_offset) from {runs}),
    (select max(last_id) from {runs})
from {runs}
order by first_offset desc
limit 1;
select first_id, last_id from {holes} where first_id > 0 order by first_id desc limit :n;
select max(last_id) into @tq_highest from {runs};
select min(id) as low, max(id) as high
from (
    select id, id - row_number() over (order by id) as island
    from (
        select id from {log} force index (primary) where id > @tq_highest order by id limit 100000
    ) as fresh
) as numbered
group by island;
-- name: sequence.late
select id from {log} force index (primary) where id between :low and :high order by id limit 100000;
-- name: sequence.change
update {holes} set last_id = last_id - 1 where first_id = 0 and last_id = :version;
set @tq_first = row_count();
-- name: sequence.extend
update {runs} set last_id = :last_id where first_offset = :first_offset and @tq_first;
-- name: sequence.add
insert into {runs} (first_offset, first_id, last_id)
select first_offset, low, high from {run} where @tq_first;
-- name: sequence.forget
delete {holes} from {given} straight_join {holes} force index (primary) on {holes}.first_id = given.id
where @tq_first;
-- name: sequence.note
insert into {holes} (first_id, last_id, seen_at)
select low, high, utc_timestamp(6) from {piece} where @tq_first;
-- name: sequence.tell
select @tq_first;

-- name: close_holes
-- Close holes that no transaction will fill, so that sequence need not look at them: rows that are no messages take
-- their ids. An insert that got such an id before, and has not inserted its row, then gets a duplicate key, and is
-- repeated with another id. So nothing is lost, whatever has happened to it meanwhile.
-- A hole is closed if it was seen a minute ago, and if it has no row, not even one that is not committed, or prepared
-- (READ UNCOMMITTED). Holes of more than 1,000 ids stay.
-- Each hole repeats the condition of the fourth statement, before which the third one comes each time. The other ones
-- are one transaction and one round trip, as in sequence. If one of the ids is taken by now, all is rolled back.
-- Indexes: the primary keys. Locks: the rows, and that of sequence. A crash leaves all or nothing.
-- name: close_holes.version
select last_id from {holes} where first_id = 0;
-- name: close_holes.find
select first_id, last_id
from {holes}
where first_id > 0 and seen_at <= utc_timestamp(6) - interval 1 minute and last_id < first_id + 1000;
-- name: close_holes.dirty
set transaction isolation level read uncommitted;
-- name: close_holes.look
select id from {log} force index (primary) where id between :low and :high;
-- name: close_holes.change
update {holes} set last_id = last_id - 1 where first_id = 0 and last_id = :version;
set @tq_first = row_count();
insert into {log} (id, payload) select id, '0' from {given} where @tq_first;
-- name: close_holes.delete
delete {holes} from {given} straight_join {holes} force index (primary) on {holes}.first_id = given.id
where @tq_first;

-- name: topic_bounds
-- Index: the primary key of the runs. Locks: none.
select
    (select first_offset + 1 from {runs} order by first_offset limit 1),
    (select first_offset + last_id - first_id + 1 from {runs} order by first_offset desc limit 1);

-- name: topic_rows
-- The messages at the offsets from :start on and before :end, mostly in their order.
-- The first statement finds the runs. Each of them repeats the condition of the second one.
-- Indexes: the primary keys. Locks: none.
-- name: topic_rows.runs
(
    select first_offset, first_id, last_id
    from {runs} where first_offset <= :start order by first_offset desc limit 1
)
union all
(
    select first_offset, first_id, last_id
    from {runs} where first_offset > :start and first_offset < :end order by first_offset
);
-- name: topic_rows.read
select id, payload, headers, convert(group_key using utf8mb4) as group_key, producer, pushed_at
from {log} force index (primary)
where id between :low and :high;

-- name: topic_size
-- What the log has: the number of its messages, the bytes with the index as the statistics of the table have them, and
-- the seconds since the first message was pushed. Messages in holes are not counted.
-- Indexes: the primary keys, that of the runs by last_id. Locks: none.
select
    (select first_offset + last_id - first_id from {runs} order by first_offset desc limit 1)
        - (select first_offset from {runs} order by first_offset limit 1)
        + (select count(*) from {log} where id > (select last_id from {runs} order by last_id desc limit 1)),
    (
        select cast(coalesce(sum(data_length + index_length), 0) as signed)
        from information_schema.tables
        where table_schema = {database} and table_name = '{table}'
    ),
    (
        select timestampdiff(microsecond, pushed_at, {now}) / 1e6
        from {log} where pushed_at is not null order by id limit 1
    );

-- name: topic_trim
-- Drop messages that come before the offset :start: up to :n of them, in the order of the offsets.
-- The first two statements look without locks, as in sequence: the second one finds runs, of which the first one is the
-- last message that was dropped before. The part chooses :ids of messages, and computes :runs: the last message that is
-- dropped now, and what is left of a run. The others are one transaction and one round trip, and change nothing if
-- another session has given offsets meanwhile. They delete the messages, and replace the runs up to the offset
-- :last_offset by these.
-- Three of them are left out while there is more to drop. They find without locks, and delete, rows that have closed
-- holes, below all ids that are in runs or holes still; :highest is the highest id that was ever dropped. What is that
-- old is dropped, so nothing that was to be kept is lost if an insert has such an id, and has waited since then.
-- Indexes: the primary keys, {table}__last_id. Locks: the rows. A crash leaves all of a call, or nothing.
-- name: topic_trim.version
select last_id from {holes} where first_id = 0;
-- name: topic_trim.find
select first_offset, first_id, last_id from {runs} where first_offset < :start order by first_offset limit :n;
-- name: topic_trim.change
update {holes} set last_id = last_id - 1 where first_id = 0 and last_id = :version;
set @tq_first = row_count();
delete {log} from {given} straight_join {log} force index (primary) on {log}.id = given.id where @tq_first;
delete from {runs} where first_offset <= :last_offset and @tq_first;
insert into {runs} (first_offset, first_id, last_id)
select first_offset, low, high from {run} where @tq_first;
-- name: topic_trim.closed
select least(
    :highest + 1,
    coalesce((select min(first_id) from {holes} where first_id > 0), :highest + 1),
    coalesce((
        select first_id from {runs} force index ({table}__last_id)
        where first_offset > :last_offset order by last_id limit 1
    ), :highest + 1)
) into @tq_lowest;
select json_arrayagg(id) into @tq_closed
from (
    select id from {log} force index (primary) where id < @tq_lowest and pushed_at is null order by id limit 10000
) as closed;
delete {log}
from json_table(@tq_closed, '$[*]' columns (id bigint path '$')) as given
straight_join {log} force index (primary) on {log}.id = given.id
where @tq_first;
-- name: topic_trim.tell
select @tq_first;

-- name: topic_stats_pushed
-- Index: the primary key, backwards, for :n rows: no index has the time of a push, but ids rise with it. Locks: none.
select producer, timestampdiff(microsecond, pushed_at, {now}) / 1e6 as ago, count(*) as pushed
from (select producer, pushed_at from {log} order by id desc limit :n) as newest
where pushed_at > {now} - interval :age second and pushed_at <= {now}
group by producer, pushed_at;
