-- Batches: messages with a callback, which is pushed when all of them are finished.

-- name: create_batches
-- An index shows which messages of a batch are left, by their states. A message that is completed takes its membership
-- with it, so that a completion costs nothing more. A trigger counts those that leave the queue in another way, or
-- after they were told to stop. All queues share the table of the batches, and that of the counts, whose rows are only
-- appended: nobody waits there. open_in is the table of the queue while the batch is open. The numbers of a batch are
-- final once it has ended. Runs in one transaction: a crash leaves nothing.
alter table {queue} add column batch_id integer;
create index {table}__batch on {queue} (batch_id, state, id) where batch_id is not null;
create table if not exists {batches} (
    id integer primary key autoincrement,
    queue text not null,
    open_in text,
    on_dead text not null,
    then_push text,
    failed_push text,
    pushed integer not null,
    cancelled integer not null default 0,
    dead integer not null default 0,
    opened_at integer not null,
    failed_at integer,
    ended_at integer
) strict;
create index if not exists tq__batches_open on {batches} (open_in, id) where open_in is not null;
create index if not exists tq__batches_ended on {batches} (queue, ended_at);
create table if not exists {batch_counts} (
    batch_id integer not null,
    pushed integer not null,
    cancelled integer not null
) strict;
create index if not exists tq__batch_counts_batch on {batch_counts} (batch_id);
create trigger {table}__withdrawn after delete on {queue}
    when old.batch_id is not null and (old.state <> 'in_progress' or old.cancelled_at is not null)
    begin
        insert into {batch_counts} (batch_id, pushed, cancelled) values (old.batch_id, 0, 1);
    end;

-- name: create_batch_results
-- Runs in one transaction: a crash leaves nothing.
alter table {results} add column batch_id integer;
create index if not exists {table}__results_batch on {results} (batch_id, id) where batch_id is not null;

-- name: open_batch
-- Locks: the database. A crash before the commit leaves nothing.
insert into {batches} (queue, open_in, on_dead, then_push, failed_push, pushed, opened_at)
values ('{table}', '{table}', :on_dead, :then_push, :failed_push, :pushed, {now})
returning id;

-- name: batch_of
-- Index: the primary key. Locks: the database. A crash leaves everything as it was.
select batch_id from {queue} where id = :id and token = :token;

-- name: batches_of
-- Index: the primary key. Locks: none. A crash leaves everything as it was.
select id, batch_id from {queue}
where id in (select value from json_each(:ids)) and token = :token and batch_id is not null;

-- name: lock_batch
-- Index: the primary key. Locks: the database.
select then_push, failed_push from {batches} where id = :id and open_in = '{table}';

-- name: stats_batches
-- Index: tq__batches_open. Locks: none.
select count(*) from (select 1 from {batches} where open_in = '{table}' limit 100000);

-- name: forget_batches
-- Looks without locks, and changes by what the looks have found: nobody waits for an open transaction.
-- Indexes: tq__batches_ended, the primary key, tq__batch_counts_batch; the counts, which are few, are read whole.
-- Locks: the database. A crash leaves some for the next time.
-- name: forget_batches.find
select id from {batches}
where queue = '{table}' and ended_at <= {now} - cast(:age * 1000000 as integer)
order by ended_at
limit :n;
-- name: forget_batches.change
delete from {batches} where id in (select value from json_each(:ids));
-- name: forget_batches.find_counts
select distinct batch_id from {batch_counts} where batch_id not in (select id from {batches}) limit :n;
-- name: forget_batches.change_counts
delete from {batch_counts} where batch_id in (select value from json_each(:ids));
