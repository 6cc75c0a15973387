-- Batches: messages with a callback, which is pushed when all of them are finished.

-- name: drop_batches
-- Forget the batches of a queue that is dropped, and drop what they have beside its table. In one transaction with the
-- queue; on MariaDB and MySQL a crash before the end leaves rows that nothing reads.
delete from {batch_counts} where batch_id in (select id from {batches} where queue = '{table}');
delete from {batches} where queue = '{table}';

-- name: count_batch
-- Locks: none that another transaction waits for, on SQLite the database. A crash before the commit leaves nothing.
insert into {batch_counts} (batch_id, pushed, cancelled) values (:batch_id, :pushed, 0);

-- name: find_batch
-- Index: the primary key. Locks: none.
select queue from {batches} where id = :id;

-- name: open_batches
-- Indexes: tq__batches_open, on MariaDB and MySQL open_in; {table}__batch, with a few looks for each batch. Locks:
-- none.
select
    batch.id,
    batch.on_dead,
    batch.failed_push is not null and batch.failed_at is null,
    exists (
        select 1 from {queue} as member
        where member.batch_id = batch.id and member.state in ('blocked', 'in_progress', 'ready', 'scheduled')
    ),
    exists (select 1 from {queue} as member where member.batch_id = batch.id and member.state = 'dead'),
    batch.on_dead = 'cancel' and exists (
        select 1 from {queue} as member
        where member.batch_id = batch.id and member.state in ('blocked', 'in_progress', 'ready', 'scheduled')
            and member.cancelled_at is null
    )
from (
    select id, on_dead, failed_push, failed_at from {batches}
    where open_in = '{table}' and id > :after
    order by id
    limit :n
) as batch
order by batch.id;

-- name: lock_batch
-- Index: the primary key. Locks: the row, until the transaction ends; a locked one is skipped.
select then_push, failed_push from {batches} where id = :id and open_in = '{table}' for update skip locked;

-- name: note_failed
-- Index: the primary key. A crash before the commit leaves neither.
update {batches} set failed_at = {now} where id = :id;

-- name: end_batch
-- Indexes: the primary key, tq__batch_counts_batch, on MariaDB and MySQL batch_id. A crash before the commit leaves it
-- open.
update {batches}
set open_in = null, ended_at = {now}, pushed = :pushed, cancelled = :cancelled, dead = :dead
where id = :id;
delete from {batch_counts} where batch_id = :id;

-- name: batch_progress
-- Indexes: the primary key, tq__batch_counts_batch, on MariaDB and MySQL batch_id; {table}__batch, all of the batch.
-- Locks: none.
select
    {batch_numbers}
from {batches} as batch
where batch.id = :id;

-- name: batches_progress
-- Indexes: tq__batches_open, tq__batch_counts_batch, on MariaDB and MySQL open_in, batch_id; {table}__batch, all of
-- each batch. Locks: none.
select
    batch.id,
    {batch_numbers}
from (
    select * from {batches}
    where open_in = '{table}' and id > :after
    order by id
    limit :n
) as batch
order by batch.id;

-- name: batch_results
-- Index: {table}__results_batch, on MariaDB and MySQL results_batch. Locks: none.
select id, result from {results}
where batch_id = :id and id > :after
order by id
limit :n;

-- name: stats_batches
-- Index: tq__batches_open, on MariaDB and MySQL open_in. Locks: none.
select count(*) from (select 1 from {batches} where open_in = '{table}' limit 100000) as few;

-- name: uncancelled
-- Index: {table}__batch. Locks: none.
select id from {queue}
where batch_id = :id and cancelled_at is null and (state <> 'dead' or :dead = 1)
limit :n;
