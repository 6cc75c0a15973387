-- For psql, as it is. With `psql --single-transaction` it is all or nothing.

-- The creators' lock: one at a time makes or upgrades tables in a database, until its transaction ends; the number is
-- tablequeue's own. CREATE ... IF NOT EXISTS alone fails when two run at once.
select pg_advisory_xact_lock(8318836321);

-- From schema version 1 to 2: priority, groups and deduplication keys.
-- Locks: the tables, for as long as their indexes take. Runs in one transaction: a crash leaves version 1.
alter table tq_emails add column priority integer not null default 0;
alter table tq_emails add column group_key text;
alter table tq_emails add column dedup_key text;
alter table tq_emails drop constraint tq_emails_state_check;
alter table tq_emails add constraint tq_emails_state_check
check (state in ('ready', 'scheduled', 'in_progress', 'dead', 'blocked'));
create index tq_emails_blocked on tq_emails (group_key, id) where state = 'blocked';
create unique index tq_emails_key on tq_emails (dedup_key) where dedup_key is not null;
alter table tq_emails_history add column priority integer not null default 0;
alter table tq_emails_history add column token uuid;
alter table tq_emails_history add column group_key text;
alter table tq_emails_history add column dedup_key text;
create index tq_emails_finished on tq_emails_history (finished_at);

-- Remove the dashes if there is such a table and no queue has that name:
-- alter view tq_emails_packed rename to tq_emails__packed;
-- alter index if exists tq_emails_packs_lease rename to tq_emails__packs_lease;
-- alter table tq_emails_packs rename to tq_emails__packs;

-- Remove the dashes if there is such a table and no queue has that name:
-- alter table tq_emails_streams rename to tq_emails__streams;

-- Remove the dashes if there is such a table and no queue has that name:
-- alter table tq_emails_writers rename to tq_emails__writers;

-- Remove the dashes if there is such a table and no queue has that name:
-- drop table tq_emails_staged;

-- Remove the dashes if there is such a table and no queue has that name:
-- drop table tq_emails_parts;

-- Remove the dashes if there is such a table and no queue has that name:
-- alter table tq_schedules rename to tq__schedules;

-- From schema version 3 to 4: the parts of a queue's table are named tq_emails__part, as no queue's table is.
-- Of the procedures, those that take other parameters now are dropped; all are to be made again.
-- Locks: the table, for a moment. Runs in one transaction: a crash leaves version 3.
alter index if exists tq_emails_ready rename to tq_emails__ready;
alter index if exists tq_emails_scheduled rename to tq_emails__scheduled;
alter index if exists tq_emails_in_progress rename to tq_emails__in_progress;
alter index if exists tq_emails_dead rename to tq_emails__dead;
alter index if exists tq_emails_blocked rename to tq_emails__blocked;
alter index if exists tq_emails_key rename to tq_emails__key;
drop function if exists tq_emails_sweep(float8, timestamptz);
drop function if exists tq_emails_arrange(timestamptz);
alter index if exists tq_emails_finished rename to tq_emails__finished;

-- The tables whose claims are paused: their messages are not handed out until that time. Usually there is none.
-- Under the creators' lock. A crash leaves nothing.
create table if not exists tq__paused (
    name text constraint tq__paused_name primary key,
    until timestamptz not null
);

-- The tables of dropped queues, topics and subscriptions. Nothing new gets a table of such a name, so a process that
-- has a dropped queue open reaches no other one.
-- Under the creators' lock. A crash leaves nothing.
create table if not exists tq__dropped (name text constraint tq__dropped_name primary key);

-- From schema version 4 to 5: messages that expire or are cancelled. No table is written anew.
-- Locks: the tables, for a moment. Runs in one transaction: a crash leaves version 4.
alter table tq_emails add column expires_at timestamptz, add column cancelled_at timestamptz;
alter table tq_emails_history add column outcome text;

-- From schema version 6 to 7: the messages of packs, each of which was one row with many messages in progress, are rows
-- of the queue, in progress under the same token and lease. A queue of version 2 had no packs.
-- Of the procedures, the one that did so is dropped; all are to be made again.
-- Locks: the tables, for as long as it takes to write the messages. Runs in one transaction: a crash leaves version 6.
do $$
    begin
        if to_regclass('tq_emails__packs') is not null then
            insert into tq_emails (
                id, state, attempts, priority, token, pushed_at, due_at, first_popped_at, popped_at, lease_until,
                producer, consumer, headers, payload
            )
            select
                message.id, 'in_progress', 1, message.priority, pack.token, message.pushed_at, message.due_at,
                pack.popped_at, pack.popped_at, pack.lease_until, message.producer, pack.consumer, message.headers,
                message.payload
            from tq_emails__packs as pack, unnest(
                pack.ids, pack.priorities, pack.pushed_ats, pack.due_ats, pack.producers, pack.headers, pack.payloads
            ) as message (id, priority, pushed_at, due_at, producer, headers, payload);
        end if;
    end;
    $$;
drop view if exists tq_emails__packed;
drop table if exists tq_emails__packs;
drop function if exists tq_emails_unpack(uuid);

-- Enter the schema version of a queue in the catalogue, in the transaction that upgrades its tables.
update tq_queues set schema_version = 8 where name = 'emails';
