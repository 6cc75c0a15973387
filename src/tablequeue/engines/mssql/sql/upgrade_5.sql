-- From schema version 4 to 5: messages that expire or are cancelled. No table is written anew.
-- Locks: the tables, for a moment. Runs in one transaction: a crash leaves version 4.
alter table {queue} add expires_at datetime2(6) null, cancelled_at datetime2(6) null;
-- [keep]
alter table {history} add outcome varchar(9) collate Latin1_General_100_BIN2 null;
-- [end]
