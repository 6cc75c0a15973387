-- A queue's history from schema version 1 to 2, in the transaction of its table's upgrade.
-- Locks: the table, for as long as its index takes. A crash leaves version 1.
alter table {history} add column priority integer not null default 0;
alter table {history} add column token uuid;
alter table {history} add column group_key text;
alter table {history} add column dedup_key text;
create index {table}_finished on {history} (finished_at);
