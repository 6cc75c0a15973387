-- For sqlite3, as it is. Between `begin;` and `commit;` it is all or nothing.

-- From schema version 1 to 2: priority, groups and deduplication keys.
-- Locks: the tables, for as long as their indexes take. Runs in one transaction: a crash leaves version 1.
-- The check of the states stays as it was: no queue of version 1 can have blocked messages.
alter table tq_emails add column priority integer not null default 0;
alter table tq_emails add column group_key text;
alter table tq_emails add column dedup_key text;
create index tq_emails_blocked on tq_emails (group_key, id) where state = 'blocked';
create unique index tq_emails_key on tq_emails (dedup_key) where dedup_key is not null;
alter table tq_emails_history add column priority integer not null default 0;
alter table tq_emails_history add column token text;
alter table tq_emails_history add column group_key text;
alter table tq_emails_history add column dedup_key text;
create index tq_emails_finished on tq_emails_history (finished_at);

-- Remove the dashes if there is such a table and no queue has that name:
-- alter table tq_emails_streams rename to tq_emails__streams;

-- Remove the dashes if there is such a table and no queue has that name:
-- alter table tq_emails_writers rename to tq_emails__writers;

-- Remove the dashes if there is such a table and no queue has that name:
-- drop table tq_emails_staged;

-- Remove the dashes if there is such a table and no queue has that name:
-- alter table tq_schedules rename to tq__schedules;

-- From schema version 3 to 4: the parts of a queue's table are named tq_emails__part, as no queue's table is.
-- SQLite has no other way to rename an index than to make it again.
-- Locks: the database, for as long as its indexes take. Runs in one transaction: a crash leaves version 3.
drop index if exists tq_emails_ready;
drop index if exists tq_emails_scheduled;
drop index if exists tq_emails_in_progress;
drop index if exists tq_emails_dead;
drop index if exists tq_emails_blocked;
drop index if exists tq_emails_key;
create index if not exists tq_emails__ready on tq_emails (id) where state = 'ready';
create index if not exists tq_emails__scheduled on tq_emails (due_at) where state = 'scheduled';
create index if not exists tq_emails__in_progress on tq_emails (lease_until) where state = 'in_progress';
create index if not exists tq_emails__dead on tq_emails (id) where state = 'dead';
create index if not exists tq_emails__blocked on tq_emails (group_key, id) where state = 'blocked';
create unique index if not exists tq_emails__key on tq_emails (dedup_key) where dedup_key is not null;
drop index if exists tq_emails_finished;
create index if not exists tq_emails__finished on tq_emails_history (finished_at);

-- The tables whose claims are paused: their messages are not handed out until that time. Usually there is none.
-- Locks: the database. A crash leaves nothing.
create table if not exists tq__paused (
    name text primary key,
    until integer not null
) strict, without rowid;

-- The tables of dropped queues, topics and subscriptions. Nothing new gets a table of such a name, so a process that
-- has a dropped queue open reaches no other one.
-- Locks: the database. A crash leaves nothing.
create table if not exists tq__dropped (name text primary key) strict, without rowid;

-- From schema version 4 to 5: messages that expire or are cancelled.
-- Locks: the database. Runs in one transaction: a crash leaves version 4.
alter table tq_emails add column expires_at integer;
alter table tq_emails add column cancelled_at integer;
alter table tq_emails_history add column outcome text;

-- Enter the schema version of a queue in the catalogue, in the transaction that upgrades its tables.
update tq_queues set schema_version = 8 where name = 'emails';
