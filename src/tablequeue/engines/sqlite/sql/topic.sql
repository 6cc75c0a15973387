-- The log of a topic: push, give offsets, read, trim.

-- name: topic_push
-- Locks: the database, for the length of the statement. A crash before the commit leaves nothing.
insert into {log} (pushed_at, producer, group_key, headers, payload)
values ({now}, :producer, :group, :headers, :payload)
returning id;

-- name: topic_push_many
-- Push several messages in their order, some in a statement: (:payload) stands there once for each of them.
-- All statements are in one transaction: all are pushed, or none. The ids are consecutive and end at
-- last_insert_rowid(). Locks: the database. A crash before the commit leaves nothing.
insert into {log} (pushed_at, producer, group_key, headers, payload)
select {now}, :producer, :group, :headers, column1
from (values (:payload));

-- name: topic_bounds
-- Index: the primary key. Locks: none.
select
    coalesce((select min(id) from {log}), (select seq + 1 from {prefix}sqlite_sequence where name = '{log_name}'), 1),
    coalesce((select seq + 1 from {prefix}sqlite_sequence where name = '{log_name}'), 1);

-- name: topic_pushed_at
-- When the message at offset :start, or the first one after it, was pushed. Index: the primary key. Locks: none.
select pushed_at from {log} where id >= :start order by id limit 1;

-- name: topic_rows
-- The messages at the offsets from :start on and before :end. Index: the primary key. Locks: none.
select id as message_offset, id, payload, headers, group_key, producer, pushed_at
from {log}
where id >= :start and id < :end
order by id;

-- name: topic_size
-- What the log has: the number of its messages, their bytes, and the seconds since the first one was pushed. The bytes
-- are an estimate: as if all messages were as long as the last 1,000. Index: the primary key. Locks: none.
select
    messages,
    cast(coalesce(messages * (
        select avg(30 + length(cast(payload as blob)) + coalesce(length(headers), 0))
        from (select payload, headers from {log} order by id desc limit 1000)
    ), 0) as integer),
    (select ({now} - pushed_at) / 1e6 from {log} order by id limit 1)
from (select coalesce(max(id) - min(id) + 1, 0) as messages from {log});

-- name: topic_trim
-- Delete messages that come before the offset :start: up to 10,000 of them, from the beginning of the log, whose pages
-- new messages fill. Index: the primary key. Locks: the database.
delete from {log} where id < min(:start, (select min(id) from {log}) + 10000);
select changes();

-- name: topic_stats_pushed
-- Index: the primary key, backwards, for :n rows: no index has the time of a push, but ids rise with it. Locks: none.
select producer, ({now} - pushed_at) / 1e6 as ago, count(*) as pushed
from (select producer, pushed_at from {log} order by id desc limit :n) as newest
where pushed_at > {now} - cast(:age * 1000000 as integer) and pushed_at <= {now}
group by producer, pushed_at;
