-- Staged messages of many processes: write, publish, delete.

-- name: create_staged
-- No index: it holds the writes under way only, and each reads its own once.
-- Made at the first such write. Runs in one transaction: a crash leaves nothing.
create table if not exists {staged} (
    write_id text not null,
    attempt text not null,
    part integer not null,
    place integer not null,
    payload {staged_type} not null,
    headers text,
    priority integer,
    group_key text,
    dedup_key text,
    due_at integer,
    staged_at integer not null
) strict;
create table if not exists {writers} (
    writer text primary key,
    batch integer not null
) strict, without rowid;

-- name: stage
-- Stage one message of the write :write; the engine repeats it. Locks: the database.
-- After a crash the staged messages stay for a day, invisible.
insert into {staged} (
    write_id, attempt, part, place, payload, headers, priority, group_key, dedup_key, due_at, staged_at
)
values (:write, :attempt, :part, :place, :payload, :headers, :priority, :group, :key, :due, {now});

-- name: staged_count
-- It reads the whole table. Locks: none.
select count(*)
from {staged}
where write_id = :write and attempt in (select value from json_each(:attempts));

-- name: staged_taken
-- Locks: none.
-- Index: {table}__key; it reads all of {staged}.
select dedup_key from (
    select dedup_key
    from {staged} as staged
    where write_id = :write and attempt in (select value from json_each(:attempts))
        and exists (select 1 from {queue} as there where there.dedup_key = staged.dedup_key)
    union
    select dedup_key from {staged}
    where write_id = :write and attempt in (select value from json_each(:attempts)) and dedup_key is not null
    group by dedup_key having count(*) > 1
) as taken
order by dedup_key
limit 100;

-- name: writer_advance
-- Returns a row, or none if that batch was written before. Index: the primary key.
-- Locks: the database, until the transaction ends, in which publish follows.
insert into {writers} (writer, batch) values (:writer, :batch)
on conflict (writer) do update set batch = excluded.batch where batch < excluded.batch
returning batch;

-- name: publish
-- A message whose key is taken, even by an earlier one of them, is left out; the caller counts the others.
-- Index: {table}__key. Locks: the database. One transaction with writer_advance: a crash publishes none.
insert into {queue} (
    payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state{expires_at}
)
select
    payload, headers, :producer, coalesce(priority, 0), coalesce(group_key, :group), dedup_key, {now},
    coalesce(due_at, {default_due}), case when due_at > {now} then '{pushed_scheduled}' else '{pushed_ready}' end{until}
from {staged}
where write_id = :write and attempt in (select value from json_each(:attempts))
order by part, place
on conflict (dedup_key) where dedup_key is not null do nothing;

-- name: publish_topic
-- Push to a log what the :attempts of the write :write staged, in the order of their parts, all at once.
-- Locks: the database. One transaction with writer_advance: a crash publishes none.
insert into {log} (pushed_at, producer, group_key, headers, payload)
select {now}, :producer, group_key, headers, payload
from {staged}
where write_id = :write and attempt in (select value from json_each(:attempts))
order by part, place;

-- name: unstage
-- It reads the whole table, which holds the writes under way only. A crash leaves it for the next write.
delete from {staged}
where write_id = :write or staged_at < {now} - 86400000000;
