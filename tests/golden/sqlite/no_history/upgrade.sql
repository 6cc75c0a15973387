-- For sqlite3, as it is. Between `begin;` and `commit;` it is all or nothing.

-- A queue's table from schema version 1 to 2: priority, groups and deduplication keys.
-- Locks: the table, for as long as its indexes take. Runs in one transaction: a crash leaves version 1.
-- The check of the states stays as it was: no queue of version 1 can have blocked messages.
alter table tq_emails add column priority integer not null default 0;
alter table tq_emails add column group_key text;
alter table tq_emails add column dedup_key text;
create index tq_emails_blocked on tq_emails (group_key, id) where state = 'blocked';
create unique index tq_emails_key on tq_emails (dedup_key) where dedup_key is not null;

-- Enter the schema version of a queue in the catalogue, in the transaction that upgrades its tables.
update tq_queues set schema_version = 2 where name = 'emails';
