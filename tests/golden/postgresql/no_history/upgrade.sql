-- Run this on one connection, in one transaction if the database's DDL can be in one, with these parameters:
--   :name            'emails'
--   :schema_version  2

-- A queue's table from schema version 1 to 2: priority, groups and deduplication keys.
-- Locks: the table, for as long as its indexes take. Runs in one transaction: a crash leaves version 1.
alter table tq_emails add column priority integer not null default 0;
alter table tq_emails add column group_key text;
alter table tq_emails add column dedup_key text;
alter table tq_emails drop constraint tq_emails_state_check;
alter table tq_emails add constraint tq_emails_state_check
check (state in ('ready', 'scheduled', 'in_progress', 'dead', 'blocked'));
create index tq_emails_blocked on tq_emails (group_key, id) where state = 'blocked';
create unique index tq_emails_key on tq_emails (dedup_key) where dedup_key is not null;

-- Enter the schema version of a queue in the catalogue, in the transaction that upgrades its tables.
update tq_queues set schema_version = :schema_version where name = :name;
