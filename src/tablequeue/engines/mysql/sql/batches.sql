-- Batches: messages with a callback, which is pushed when all of them are finished.

-- name: create_batches
-- An index shows which messages of a batch are left, by their states. A message that is completed takes its membership
-- with it, so that a completion costs nothing more. A trigger counts those that leave the queue in another way, or
-- after they were told to stop. All queues share the table of the batches, and that of the counts, whose rows are only
-- appended: nobody waits there. open_in is the table of the queue while the batch is open. The numbers of a batch are
-- final once it has ended. DELIMITER is for the client programs: there are semicolons inside the trigger.
-- A crash before the end leaves tables that are not in the catalogue: see create. When a queue is altered, it leaves
-- what a queue without batches does not use, and the next alter makes the rest.
alter table {queue} add column batch_id bigint, add key {table}__batch (batch_id, state, id);
create table if not exists {batches} (
    id bigint not null auto_increment primary key,
    queue varchar(64) character set ascii collate ascii_bin not null,
    open_in varchar(64) character set ascii collate ascii_bin,
    on_dead varchar(8) character set ascii collate ascii_bin not null,
    then_push longtext,
    failed_push longtext,
    pushed bigint not null,
    cancelled bigint not null default 0,
    dead bigint not null default 0,
    opened_at datetime(6) not null,
    failed_at datetime(6),
    ended_at datetime(6),
    key open_in (open_in, id),
    key ended (queue, ended_at)
) engine = InnoDB, row_format = dynamic, character set utf8mb4, collate utf8mb4_bin,
    comment = 'tablequeue: the batches';
create table if not exists {batch_counts} (
    id bigint not null auto_increment primary key,
    batch_id bigint not null,
    pushed bigint not null,
    cancelled bigint not null,
    key batch_id (batch_id)
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: the counts of batches';
delimiter //
create trigger {queue}__withdrawn after delete on {queue} for each row
    if old.batch_id is not null and (old.state <> 'in_progress' or old.cancelled_at is not null) then
        insert into {batch_counts} (batch_id, pushed, cancelled) values (old.batch_id, 0, 1);
    end if //
delimiter ;

-- name: create_batch_results
-- It commits by itself: a crash leaves both or nothing.
alter table {results} add column batch_id bigint, add key results_batch (batch_id, id);

-- name: open_batch
-- Locks: none that another transaction waits for. A crash before the commit leaves nothing.
insert into {batches} (queue, open_in, on_dead, then_push, failed_push, pushed, opened_at)
values ('{table}', '{table}', :on_dead, :then_push, :failed_push, :pushed, {now});

-- name: batch_of
-- Index: the primary key. Locks: the row. A crash leaves everything as it was.
select batch_id from {queue} where id = :id and token = :token for update;

-- name: batches_of
-- Index: the primary key. Locks: none. A crash leaves everything as it was.
select message.id, message.batch_id
from {given} straight_join {queue} as message force index (primary) on message.id = given.id and token = :token
where message.batch_id is not null;

-- name: forget_batches
-- Looks without locks, and changes by what the looks have found: nobody waits for an open transaction.
-- Indexes: ended, the primary key; the counts, which are few, are read whole. Locks: the rows.
-- A crash leaves some for the next time.
-- name: forget_batches.find
select id from {batches}
where queue = '{table}' and ended_at <= {now} - interval :age second
order by ended_at
limit :n;
-- name: forget_batches.change
delete {batches} from {given} straight_join {batches} force index (primary) on {batches}.id = given.id;
-- name: forget_batches.find_counts
select id from {batch_counts} where batch_id not in (select id from {batches}) limit :n;
-- name: forget_batches.change_counts
delete {batch_counts} from {given} straight_join {batch_counts} force index (primary) on {batch_counts}.id = given.id;
