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

-- The packs of a queue: a claim of many messages that were not claimed before is one row with their columns as arrays,
-- in the order of the ids, instead of a changed row for each. Meanwhile the messages are not in the queue's table. A
-- pack is completed as a whole, or unpacked: then its messages are back in the table, in progress under the same token.
-- The view has them one by one, as they would be in the table.
-- Not compressed, and few dead rows: each may have a megabyte elsewhere.
-- Runs in one transaction: a crash leaves nothing.
create table tq_emails__packs (
    token uuid primary key,
    consumer text,
    popped_at timestamptz not null,
    lease_until timestamptz not null,
    size integer not null,
    first_id bigint not null,
    last_id bigint not null,
    ids bigint[] not null,
    priorities integer[] not null,
    pushed_ats timestamptz[] not null,
    due_ats timestamptz[] not null,
    producers text[] not null,
    headers json[] not null,
    payloads json[] not null
) with (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 100,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0,
    toast.autovacuum_vacuum_threshold = 10000,
    toast.autovacuum_vacuum_cost_delay = 0
);
alter table tq_emails__packs
    alter ids set storage external,
    alter priorities set storage external,
    alter pushed_ats set storage external,
    alter due_ats set storage external,
    alter producers set storage external,
    alter headers set storage external,
    alter payloads set storage external;
create index tq_emails__packs_lease on tq_emails__packs (lease_until);
create view tq_emails__packed as
select
    message.id, 'in_progress' as state, 1 as attempts, message.priority, pack.token, message.pushed_at, message.due_at,
    pack.popped_at as first_popped_at, pack.popped_at, pack.lease_until, cast(null as text) as group_key,
    cast(null as text) as dedup_key, message.producer, pack.consumer, message.headers, cast(null as jsonb) as errors,
    message.payload, pack.first_id, pack.last_id
from tq_emails__packs as pack, unnest(
        pack.ids, pack.priorities, pack.pushed_ats, pack.due_ats, pack.producers, pack.headers, pack.payloads
    ) as message (id, priority, pushed_at, due_at, producer, headers, payload);

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

-- Enter the schema version of a queue in the catalogue, in the transaction that upgrades its tables.
update tq_queues set schema_version = 6 where name = 'emails';
