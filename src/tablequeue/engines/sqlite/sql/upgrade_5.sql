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
