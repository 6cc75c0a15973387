-- How many finished messages are in the history. Reads the whole of {table}_finished. Locks: none.
select count(finished_at) from {history};
