-- The lowest and the highest id of the messages in a queue.
-- Index: the primary key. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option: shared locks while it reads,
-- and it waits for transactions that change a row.
select (select min(id) from {queue}) as low, (select max(id) from {queue}) as high;
