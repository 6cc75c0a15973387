-- From schema version 1 to 2: priority, groups and deduplication keys.
-- Locks: the tables, for as long as their indexes take. Runs in one transaction: a crash leaves version 1.
alter table {queue} add column priority integer not null default 0;
alter table {queue} add column group_key text;
alter table {queue} add column dedup_key text;
alter table {queue} drop constraint {table}_state_check;
alter table {queue} add constraint {table}_state_check
check (state in ('ready', 'scheduled', 'in_progress', 'dead', 'blocked'));
create index {table}_blocked on {queue} (group_key, id) where state = 'blocked';
create unique index {table}_key on {queue} (dedup_key) where dedup_key is not null;
-- [keep]
alter table {history} add column priority integer not null default 0;
alter table {history} add column token uuid;
alter table {history} add column group_key text;
alter table {history} add column dedup_key text;
create index {table}_finished on {history} (finished_at);
-- [end]
