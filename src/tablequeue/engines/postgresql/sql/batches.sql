-- Batches: messages with a callback, which is pushed when all of them are finished.

-- name: create_batches
-- An index shows which messages of a batch are left, by their states. A message that is completed takes its membership
-- with it, so that a completion costs nothing more. A trigger counts those that leave the queue in another way, or
-- after they were told to stop. All queues share the table of the batches, and that of the counts, whose rows are only
-- appended: nobody waits there. open_in is the table of the queue while the batch is open. The numbers of a batch are
-- final once it has ended. The trigger also fires in sessions whose session_replication_role is replica: else counts
-- would be wrong.
-- Locks: the table, from all others, while the server reads it once. Each shared table only when it is made: an index
-- of it, also if not exists, waits for all who write. Runs in one transaction: a crash leaves nothing.
alter table {queue} add column batch_id bigint;
create index {table}__batch on {queue} (batch_id, state, id) where batch_id is not null;
do $$
    begin
        if to_regclass('{batches}') is null then
            create table {batches} (
                id bigint generated always as identity constraint tq__batches_id primary key,
                queue text not null,
                open_in text,
                on_dead text not null,
                then_push text,
                failed_push text,
                pushed bigint not null,
                cancelled bigint not null default 0,
                dead bigint not null default 0,
                opened_at timestamptz not null,
                failed_at timestamptz,
                ended_at timestamptz
            );
            create index tq__batches_open on {batches} (open_in, id) where open_in is not null;
            create index tq__batches_ended on {batches} (queue, ended_at);
        end if;
        if to_regclass('{batch_counts}') is null then
            create table {batch_counts} (
                batch_id bigint not null,
                pushed bigint not null,
                cancelled bigint not null
            );
            create index tq__batch_counts_batch on {batch_counts} (batch_id);
            -- Counts have no key. With a publication for all tables, the server would refuse to delete them.
            alter table {batch_counts} replica identity full;
        end if;
    end;
    $$;
create function {queue}__withdrawn() returns trigger language plpgsql as $$
    begin
        insert into {batch_counts} (batch_id, pushed, cancelled) values (old.batch_id, 0, 1);
        return null;
    end;
    $$;
create trigger {table}__withdrawn after delete on {queue}
    for each row when (old.batch_id is not null and (old.state <> 'in_progress' or old.cancelled_at is not null))
    execute function {queue}__withdrawn();
alter table {queue} enable always trigger {table}__withdrawn;

-- name: create_batch_results
-- Runs in one transaction: a crash leaves nothing.
alter table {results} add column if not exists batch_id bigint;
create index if not exists {table}__results_batch on {results} (batch_id, id) where batch_id is not null;

-- name: drop_batches
-- Forget the batches of a queue that is dropped, and drop what they have beside its table.
-- In one transaction with the queue: a crash leaves all or nothing.
delete from {batch_counts} where batch_id in (select id from {batches} where queue = '{table}');
delete from {batches} where queue = '{table}';
drop function if exists {queue}__withdrawn();

-- name: open_batch
-- Locks: none that another transaction waits for. A crash before the commit leaves nothing.
insert into {batches} (queue, open_in, on_dead, then_push, failed_push, pushed, opened_at)
values (
    '{table}', '{table}', cast(:on_dead as text), cast(:then_push as text), cast(:failed_push as text), :pushed, {now}
)
returning id;

-- name: batch_of
-- Index: the primary key. Locks: the row. A crash leaves everything as it was.
select batch_id from {queue} where id = :id and token = cast(:token as uuid) for update;

-- name: batches_of
-- Index: the primary key. Locks: none. A crash leaves everything as it was.
select id, batch_id from {queue}
where id = any(cast(:ids as bigint[])) and token = cast(:token as uuid) and batch_id is not null;

-- name: batch_results
-- Index: {table}__results_batch. Locks: none.
select id, cast(result as text) from {results}
where batch_id = :id and id > :after
order by id
limit :n;

-- name: forget_batches
-- Looks without locks, and changes by what the looks have found: nobody waits for an open transaction.
-- Indexes: tq__batches_ended, the primary key, tq__batch_counts_batch; the counts, which are few, are read whole.
-- Locks: the rows. A crash leaves some for the next time.
-- name: forget_batches.find
select id from {batches}
where queue = '{table}' and ended_at <= {now} - cast(:age as float8) * interval '1 second'
order by ended_at
limit :n;
-- name: forget_batches.change
delete from {batches} where id = any(cast(:ids as bigint[]));
-- name: forget_batches.find_counts
select distinct batch_id from {batch_counts} where batch_id not in (select id from {batches}) limit :n;
-- name: forget_batches.change_counts
delete from {batch_counts} where batch_id = any(cast(:ids as bigint[]));
