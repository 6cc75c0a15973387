-- The lowest and the highest id in the history.
-- Index: the primary key. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option: shared locks while it reads,
-- and it waits for transactions that change a row.
select (select min(id) from {history}) as low, (select max(id) from {history}) as high;
