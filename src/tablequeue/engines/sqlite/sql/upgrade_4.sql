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
