-- Staged messages of many processes: write, publish, delete.

-- name: create_staged
-- The default of staged_at is in UTC, which is the time zone of the connections that stage.
-- Keys, groups and names are binary, as in the queue's own table.
-- Made at the first such write. A DDL commits by itself: a crash leaves a table or none.
create table if not exists {staged} (
    write_id char(32) character set ascii collate ascii_bin not null,
    attempt char(32) character set ascii collate ascii_bin not null,
    part int not null,
    place bigint not null,
    payload {staged_type} not null,
    headers longtext,
    priority int,
    group_key varbinary(1020),
    dedup_key varbinary(1020),
    due_at datetime(6),
    staged_at datetime(6) not null default current_timestamp(6),
    primary key (write_id, attempt, part, place)
) engine = InnoDB, row_format = dynamic, character set utf8mb4, collate utf8mb4_bin,
    comment = 'tablequeue: staged messages of {table}';
create table if not exists {writers} (
    writer varbinary(1020) not null primary key,
    batch bigint not null
) engine = InnoDB, row_format = dynamic, character set utf8mb4, collate utf8mb4_bin,
    comment = 'tablequeue: writers of {table}';

-- name: stage
-- Stage one message of the write :write; the engine repeats it. Locks: none that another transaction waits for.
-- After a crash the staged messages stay for a day, invisible.
insert into {staged} (
    write_id, attempt, part, place, payload, headers, priority, group_key, dedup_key, due_at
)
values (:write, :attempt, :part, :place, :payload, :headers, :priority, :group, :key, :due);

-- name: staged_count
-- It reads the whole table. Locks: none.
select count(*)
from {staged}
where write_id = :write and attempt in :attempts;

-- name: staged_taken
-- Locks: none.
-- Index: the primary key of {live_keys}; it reads all of {staged}.
select convert(dedup_key using utf8mb4) from (
    select dedup_key
    from {staged} as staged
    where write_id = :write and attempt in :attempts
        and exists (select 1 from {live_keys} as there where there.dedup_key = staged.dedup_key)
    union
    select dedup_key from {staged}
    where write_id = :write and attempt in :attempts and dedup_key is not null
    group by dedup_key having count(*) > 1
) as taken
order by taken.dedup_key
limit 100;

-- name: writer_advance
-- The first statement inserts the row if it is missing, and locks it. The second one changes no row if that batch was
-- written before.
-- Index: the primary key. Locks: the row, until the transaction ends, in which publish follows.
-- name: writer_advance.make
insert into {writers} (writer, batch) values (:writer, -1)
on duplicate key update batch = batch;
-- name: writer_advance.advance
update {writers} set batch = :batch where writer = :writer and batch < :batch;

-- name: publish
-- A message whose key is taken, even by an earlier one of them, is left out; the caller counts the others. If another
-- transaction pushes one of the keys at the same moment, the second part refuses it, and it is repeated. It runs if any
-- message may have a key. Indexes: the primary keys.
-- Locks: the rows. One transaction with writer_advance: a crash publishes none.
-- name: publish.insert
insert into {queue} (
    token, payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state{expires_at}
)
select
    if(dedup_key is null, null, {new_keys}),
    payload, headers, :producer, coalesce(priority, 0), coalesce(group_key, :group), dedup_key, {now},
    coalesce(due_at, {default_due}), case when due_at > {now} then '{pushed_scheduled}' else '{pushed_ready}' end{until}
from (
    select
        staged.*,
        row_number() over (
            partition by dedup_key, case when dedup_key is null then concat(attempt, ' ', place) end
            order by part, place
        ) as turn
    from {staged} as staged
    where write_id = :write and attempt in :attempts
) as batch
where turn = 1
    and (
        dedup_key is null
        or not exists (select 1 from {live_keys} as there where there.dedup_key = batch.dedup_key)
    )
order by part, place;
-- name: publish.keys
{take_new_keys}

-- name: publish_topic
-- Push to a log what the :attempts of the write :write staged, in the order of their parts, all at once.
-- Index: the primary key. Locks: none that another transaction waits for.
-- One transaction with writer_advance: a crash publishes none.
insert into {log} (payload, headers, producer, group_key, pushed_at)
select payload, headers, :producer, group_key, {now}
from {staged}
where write_id = :write and attempt in :attempts
order by part, place;

-- name: unstage
-- It reads the whole table, which holds the writes under way only. A crash leaves it for the next write.
delete from {staged}
where write_id = :write or staged_at < {now} - interval 1 day;
