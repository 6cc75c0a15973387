-- Batches: messages with a callback, which is pushed when all of them are finished.

-- name: create_batches
-- An index shows which messages of a batch are left. State is not in its key: an entry would move when the state
-- changes, and without READ_COMMITTED_SNAPSHOT a look could miss it. It is unique, because a key that is not has the
-- columns of the clustered index behind it, and the due time is one of them in a due queue. A second index has the dead
-- letters. A message that is completed takes its membership with it, so that a completion costs nothing more. A trigger
-- counts those that leave the queue in another way, or after they were told to stop. A table with a trigger on DELETE
-- refuses a DELETE with an OUTPUT without INTO (error 334), so no text of such a queue has one. Claims are updates,
-- which the trigger does not concern. All queues share the table of the batches, and that of the counts, whose rows are
-- only appended: nobody waits there. open_in is the table of the queue while the batch is open. The numbers of a batch
-- are final once it has ended. The trigger inserts with the rights of the owner of the tables. Each batch of statements
-- is compiled as a whole, so the column has one of its own. Runs in one transaction: a crash leaves nothing.
alter table {queue} add batch_id bigint null;
go
if object_id(N'{batches}', N'U') is null
begin
    create table {batches} (
        id bigint identity (1, 1) not null constraint pk_tq__batches primary key clustered,
        queue varchar(128) collate Latin1_General_100_BIN2 not null,
        open_in varchar(128) collate Latin1_General_100_BIN2 null,
        on_dead varchar(8) collate Latin1_General_100_BIN2 not null,
        then_push nvarchar(max) null,
        failed_push nvarchar(max) null,
        pushed bigint not null,
        cancelled bigint not null constraint df_tq__batches_cancelled default 0,
        dead bigint not null constraint df_tq__batches_dead default 0,
        opened_at datetime2(6) not null,
        failed_at datetime2(6) null,
        ended_at datetime2(6) null
    );
    alter table {batches} set (lock_escalation = disable);
    create index tq__batches_open on {batches} (open_in, id);
    create index tq__batches_ended on {batches} (queue, ended_at);
end;
if object_id(N'{batch_counts}', N'U') is null
begin
    create table {batch_counts} (
        batch_id bigint not null,
        id bigint identity (1, 1) not null,
        pushed bigint not null,
        cancelled bigint not null,
        constraint pk_tq__batch_counts primary key clustered (batch_id, id)
    );
    alter table {batch_counts} set (lock_escalation = disable);
end;
create unique index {table}__batch on {queue} (batch_id, id) include (state, cancelled_at) where batch_id is not null;
create index {table}__batch_dead on {queue} (batch_id, id) include (state) where state = 'dead';
go
set ansi_nulls, quoted_identifier on;
go
create trigger {queue}__withdrawn on {queue} after delete as
begin
    set nocount on;
    insert into {batch_counts} (batch_id, pushed, cancelled)
    select batch_id, 0, count_big(*)
    from deleted
    where batch_id is not null and (state <> 'in_progress' or cancelled_at is not null)
    group by batch_id;
end;

-- name: create_batch_results
-- Runs in one transaction: a crash leaves nothing.
if col_length(N'{results}', N'batch_id') is null alter table {results} add batch_id bigint null;
go
if not exists (select 1 from sys.indexes where name = '{table}__results_batch' and object_id = object_id('{results}'))
    create index {table}__results_batch on {results} (batch_id, id) where batch_id is not null;

-- name: drop_batches
-- Forget the batches of a queue that is dropped. Its trigger has gone with its table.
-- READPAST: a plan may look at rows of other queues, which are locked. The rows of this one no transaction has.
-- In one transaction with the queue: a crash leaves all or nothing.
delete from {batch_counts} with (rowlock, readpast, readcommittedlock)
where batch_id in (
    select batch.id from {batches} as batch with (rowlock, readpast, readcommittedlock) where batch.queue = '{table}'
);
delete from {batches} with (rowlock, readpast, readcommittedlock) where queue = '{table}';

-- name: open_batch
-- Locks: none that another transaction waits for. A crash before the commit leaves nothing.
insert into {batches} (queue, open_in, on_dead, then_push, failed_push, pushed, opened_at)
output inserted.id
values ('{table}', '{table}', @on_dead, @then_push, @failed_push, @pushed, @now);

-- name: batch_of
-- UPDLOCK may keep a lock of every row that it looks at, so the first statement looks without it: the message may be
-- another consumer's.
-- Index: the primary key. Locks: the row. A crash leaves everything as it was.
declare @held bigint = (
    select message.id
    from {queue} as message with (rowlock, readcommittedlock, forceseek)
    where message.id = @id and message.token = @token
);
select message.batch_id
from {queue} as message with (rowlock, updlock, forceseek)
where message.id = @held and message.token = @token;

-- name: batches_of
-- Index: the primary key. Locks: none under READ_COMMITTED_SNAPSHOT; else it waits for transactions that change one of
-- these rows. A crash leaves everything as it was.
select message.id, message.batch_id
from {queue} as message with (forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.token = @token and message.batch_id is not null;

-- name: count_batch
-- Locks: none that another transaction waits for. A crash before the commit leaves nothing.
insert into {batch_counts} (batch_id, pushed, cancelled)
values (@batch_id, @pushed, 0);

-- name: find_batch
-- Index: the primary key.
-- Locks: none under READ_COMMITTED_SNAPSHOT; else it waits for a transaction that pushes or ends the batch.
select queue from {batches} where id = @id;

-- name: open_batches
-- Of a batch that waits for its dead letters, these count as messages that wait: one that is redriven between two looks
-- would be missed by both. The first statement passes over batches that another transaction opens or ends. The second
-- one looks first for a message that nobody has locked, and for a locked one only if there is none. It tests :after
-- again, because a statement without a variable may get parameters for its literals, which a filtered index does not
-- serve. Indexes: tq__batches_open, {table}__batch, {table}__batch_dead, with a few looks for each batch.
-- Locks: shared ones while it reads. Without READ_COMMITTED_SNAPSHOT it waits for transactions that have locked all
-- messages that are left of a batch, up to the lock time-out; batches.py then leaves the batches for the next call.
declare @open table (id bigint not null primary key);
insert into @open (id)
select top (@n) id
from {batches} with (index (tq__batches_open), rowlock, readpast, readcommittedlock)
where open_in = '{table}' and id > @after
order by id;
select
    batch.id,
    batch.on_dead,
    case when batch.failed_push is not null and batch.failed_at is null then 1 else 0 end as tells,
    case
        when exists (
            select 1 from {queue} as member with (index ({table}__batch), rowlock, readpast, readcommittedlock)
            where member.batch_id = batch.id and member.batch_id is not null
                and {is_left}
        ) then 1
        when exists (
            select 1 from {queue} as member with (index ({table}__batch))
            where member.batch_id = batch.id and member.batch_id is not null
                and {is_left}
        ) then 1
        else 0
    end as active,
    case
        when exists (
            select 1 from {queue} as member with (index ({table}__batch_dead), rowlock, readpast, readcommittedlock)
            where member.batch_id = batch.id and member.state = 'dead'
        ) then 1
        else 0
    end as dead,
    case
        when batch.on_dead = 'cancel' and exists (
            select 1 from {queue} as member with (index ({table}__batch), rowlock, readpast, readcommittedlock)
            where member.batch_id = batch.id and member.batch_id is not null and member.cancelled_at is null
                and member.state in ('blocked', 'in_progress', 'ready', 'scheduled')
        ) then 1
        else 0
    end as uncancelled
from @open as there
inner join {batches} as batch with (forceseek) on batch.id = there.id
where there.id > @after
order by batch.id;

-- name: lock_batch
-- Index: the primary key. Locks: the row, until the transaction ends; a locked one is skipped.
select then_push, failed_push
from {batches} with (rowlock, readpast, updlock, readcommittedlock)
where id = @id and open_in = '{table}';

-- name: note_failed
-- Index: the primary key. Locks: the row. A crash before the commit leaves neither.
update {batches} with (rowlock) set failed_at = @now where id = @id;

-- name: end_batch
-- READPAST: a transaction that deletes a dead letter of the batch may have appended a count. It stays for
-- forget_batches.
-- Index: the primary keys. Locks: the row, and the counts of the batch. A crash before the commit leaves it open.
update {batches} with (rowlock)
set open_in = null, ended_at = @now, pushed = @pushed, cancelled = @cancelled, dead = @dead
where id = @id;
delete from {batch_counts} with (rowlock, readpast, readcommittedlock) where batch_id = @id;

-- name: batch_progress
-- Indexes: the primary keys; {table}__batch, all of the batch. Locks: none under READ_COMMITTED_SNAPSHOT; else it waits
-- for transactions that change a message of the batch.
select
    {batch_numbers}
from {batches} as batch
{of_messages}
where batch.id = @id;

-- name: batches_progress
-- Indexes: tq__batches_open, the primary keys; {table}__batch, all of each batch. Locks: as batch_progress.
select
    batch.id,
    {batch_numbers}
from (
    select top (@n) id, opened_at, failed_at, ended_at, pushed, cancelled, dead
    from {batches} with (index (tq__batches_open))
    where open_in = '{table}' and id > @after
    order by id
) as batch
{of_messages}
order by batch.id;

-- name: batch_results
-- Index: {table}__results_batch. Locks: none under READ_COMMITTED_SNAPSHOT; else shared ones.
select top (@n) id, result
from {results}
where batch_id = @id and id > @after
order by id;

-- name: stats_batches
-- Batches that another transaction opens or ends do not count. Index: tq__batches_open.
-- Locks: shared ones while it reads.
select count_big(*) as number
from (
    select top (100000) id
    from {batches} with (index (tq__batches_open), rowlock, readpast, readcommittedlock)
    where open_in = '{table}'
) as few;

-- name: uncancelled
-- Index: {table}__batch. Locks: none under READ_COMMITTED_SNAPSHOT; else it waits for transactions that change one.
declare @dead int = :dead;
select top (@n) id
from {queue} with (index ({table}__batch))
where batch_id = @id and batch_id is not null and cancelled_at is null and (state <> 'dead' or @dead = 1)
order by id;

-- name: forget_batches
-- Looks that pass over locked rows find them, and changes go by what the looks have found: nobody waits for an open
-- transaction.
-- Indexes: tq__batches_ended, the primary keys; the counts, which are few, are read whole. Locks: the rows.
-- A crash leaves some for the next time.
-- name: forget_batches.find
declare @before datetime2(6) = {now_less_age};
select top (@n) id
from {batches} with (index (tq__batches_ended), rowlock, readpast, readcommittedlock)
where queue = '{table}' and ended_at <= @before
order by ended_at;
go
-- name: forget_batches.change
delete from batch
from {batches} as batch with (rowlock, forceseek)
where batch.id in (select given.id from openjson(@ids) with (id bigint '$') as given);
go
-- name: forget_batches.find_counts
select distinct top (@n) since.batch_id
from {batch_counts} as since with (rowlock, readpast, readcommittedlock)
where not exists (
    select 1 from {batches} as batch with (forceseek, readcommittedlock) where batch.id = since.batch_id
);
go
-- name: forget_batches.change_counts
delete from since
from {batch_counts} as since with (rowlock, readpast, readcommittedlock)
where since.batch_id in (select given.id from openjson(@ids) with (id bigint '$') as given);
