-- The lowest and the highest id in the history. Index: the primary key. Locks: none under
-- READ_COMMITTED_SNAPSHOT; else shared ones while it reads, and it waits for who is changing a row.
select (select min(id) from {history}) as low, (select max(id) from {history}) as high;
