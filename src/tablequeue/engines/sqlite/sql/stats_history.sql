-- How many messages are in the history. Reads the whole of its smallest index. Locks: none.
select count(*) from {history};
