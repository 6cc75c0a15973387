-- From schema version 4 to 5: messages that expire or are cancelled.
-- Locks: the database. Runs in one transaction: a crash leaves version 4.
alter table {queue} add column expires_at integer;
alter table {queue} add column cancelled_at integer;
-- [keep]
alter table {history} add column outcome text;
-- [end]
