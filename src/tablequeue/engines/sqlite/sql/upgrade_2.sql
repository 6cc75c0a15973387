-- A queue's table from schema version 1 to 2: priority, groups and deduplication keys.
-- Locks: the table, for as long as its indexes take. Runs in one transaction: a crash leaves version 1.
-- The check of the states stays as it was: no queue of version 1 can have blocked messages.
alter table {queue} add column priority integer not null default 0;
alter table {queue} add column group_key text;
alter table {queue} add column dedup_key text;
create index {table}_blocked on {queue} (group_key, id) where state = 'blocked';
create unique index {table}_key on {queue} (dedup_key) where dedup_key is not null;
