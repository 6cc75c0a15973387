-- From schema version 4 to 5: messages that expire or are cancelled. No table is written anew.
-- Locks: the tables, for a moment. Runs in one transaction: a crash leaves version 4.
alter table {queue} add column expires_at timestamptz, add column cancelled_at timestamptz;
-- [keep]
alter table {history} add column outcome text;
-- [end]
