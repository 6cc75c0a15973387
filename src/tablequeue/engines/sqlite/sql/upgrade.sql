-- Upgrades of tables of an older schema version.

-- name: upgrade_2
-- From schema version 1 to 2: priority, groups and deduplication keys.
-- Locks: the tables, for as long as their indexes take. Runs in one transaction: a crash leaves version 1.
-- The check of the states stays as it was: no queue of version 1 can have blocked messages.
alter table {queue} add column priority integer not null default 0;
alter table {queue} add column group_key text;
alter table {queue} add column dedup_key text;
create index {table}_blocked on {queue} (group_key, id) where state = 'blocked';
create unique index {table}_key on {queue} (dedup_key) where dedup_key is not null;
-- [keep]
alter table {history} add column priority integer not null default 0;
alter table {history} add column token text;
alter table {history} add column group_key text;
alter table {history} add column dedup_key text;
create index {table}_finished on {history} (finished_at);
-- [end]

-- name: upgrade_4
-- From schema version 3 to 4: the parts of a queue's table are named {table}__part, as no queue's table is.
-- SQLite has no other way to rename an index than to make it again.
-- Locks: the database, for as long as its indexes take. Runs in one transaction: a crash leaves version 3.
drop index if exists {table}_ready;
drop index if exists {table}_scheduled;
drop index if exists {table}_in_progress;
drop index if exists {table}_dead;
drop index if exists {table}_blocked;
drop index if exists {table}_key;
create index if not exists {table}__ready on {queue} ({ready_index}) where {indexed};
create index if not exists {table}__scheduled on {queue} (due_at) where state = 'scheduled';
create index if not exists {table}__in_progress on {queue} (lease_until) where state = 'in_progress';
create index if not exists {table}__dead on {queue} (id) where state = 'dead';
create index if not exists {table}__blocked on {queue} (group_key, id) where state = 'blocked';
create unique index if not exists {table}__key on {queue} (dedup_key) where dedup_key is not null;
-- [grouped]
-- The triggers are made again by create_heads.
drop trigger if exists {table}_pushed;
drop trigger if exists {table}_moved;
drop trigger if exists {table}_left;
drop index if exists {table}_front;
create unique index if not exists {table}__front on {queue} (group_key) where {head};
-- [end]
-- [keep]
drop index if exists {table}_finished;
create index if not exists {table}__finished on {history} (finished_at);
-- [end]

-- name: upgrade_5
-- From schema version 4 to 5: messages that expire or are cancelled.
-- Locks: the database. Runs in one transaction: a crash leaves version 4.
alter table {queue} add column expires_at integer;
alter table {queue} add column cancelled_at integer;
-- [grouped]
-- Messages of a group that were claimed in a run; see create_groups.
alter table {queue} add column in_run integer not null default 0;
drop index {table}__front;
create unique index {table}__front on {queue} (group_key, in_run) where {head};
-- [end]
-- [keep]
alter table {history} add column outcome text;
-- [end]

-- name: upgrade_6_heads
-- From schema version 5 to 6: the triggers of a grouped queue know open runs. create_heads makes them anew.
-- Locks: the database. Runs in one transaction: a crash leaves version 5.
drop trigger if exists {table}__pushed;
drop trigger if exists {table}__moved;
drop trigger if exists {table}__left;

-- name: upgrade_6_moved
-- From schema version 5 to 6: a message without a group, which no trigger made ready, is in the group without a name.
-- Index: {table}__blocked. Locks: the database. Runs in one transaction: a crash leaves version 5.
update {queue} set group_key = '', state = 'blocked' where state = 'blocked' and group_key is null;

-- name: upgrade_7_batches
-- From schema version 6 to 7: an index by which batches are forgotten that ended long ago.
-- In one transaction: a crash leaves version 6.
create index if not exists tq__batches_ended on {batches} (queue, ended_at);

-- name: upgrade_4_if_schedules
-- From schema version 3 to 4: the schedules are in {schedules}, which is no queue's table.
-- Only if there is such a table, and no queue has that name.
alter table tq_schedules rename to tq__schedules;
