-- From schema version 4 to 5: messages that expire or are cancelled. No table is written anew.
-- Each statement commits by itself. A column that is there is passed over: a crash may have come after its statement.
alter table {queue} add column expires_at datetime(6) after lease_until;
alter table {queue} add column cancelled_at datetime(6) after expires_at;
-- [grouped]
-- Messages of a group that were claimed in a run; see create_groups.
alter table {queue} add column in_run bigint not null default 0;
alter table {queue} drop index {table}__front, add unique key {table}__front (front, in_run);
-- [end]
-- [keep]
alter table {history} add column outcome varchar(9) character set ascii collate ascii_bin after finished_at;
-- [end]
