-- From schema version 4 to 5: the time of a message is a default, for topic_copy. No table is written anew.
-- Locks: the log, for a moment. Runs in one transaction: a crash leaves version 4.
alter table {log} alter column pushed_at set default statement_timestamp();
