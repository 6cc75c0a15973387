-- How many finished messages are in the history. Reads the whole of {table}_finished.
-- Locks: none under
-- READ_COMMITTED_SNAPSHOT; else shared ones while it reads, and it waits for who is changing a row.
select count_big(finished_at) as finished from {history};
