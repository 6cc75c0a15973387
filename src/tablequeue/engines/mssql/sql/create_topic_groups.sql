-- The log of a topic with groups refuses a message without one, from whomever: an ordered subscription needs it. With
-- NOCHECK: an upgrade neither reads the log nor refuses what is there already.
-- Locks: the log, for a moment. Runs in one transaction: a crash leaves nothing.
alter table {log} with nocheck add constraint ck_{table}__grouped check (group_key is not null);
