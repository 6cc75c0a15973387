-- From schema version 4 to 5: messages that expire or are cancelled. No table is written anew.
-- Locks: the tables, for a moment. Runs in one transaction: a crash leaves version 4.
alter table {queue} add expires_at datetime2(6) null, cancelled_at datetime2(6) null;
-- [grouped]
-- Messages of a group that were claimed in a run; see create_groups.
alter table {queue} add in_run bigint not null constraint df_{table}__in_run default 0;
drop index {table}__front on {queue};
create unique index {table}__front on {queue} (group_key, in_run) include (state) where {head};
-- [end]
-- [keep]
alter table {history} add outcome varchar(9) collate Latin1_General_100_BIN2 null;
-- [end]
