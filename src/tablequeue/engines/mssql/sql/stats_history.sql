-- How many finished messages are in the history: counted below 100,000, and from there on the rows that the server
-- knows of, lost messages among them; for a user that may not see those, as the caller of a procedure, all are counted.
-- Index: {table}__finished, for 100,000 entries.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option: shared locks while it reads, and it waits for
-- transactions that change a row.
select case when counts.counted < 100000 then counts.counted else coalesce(
    (select sum(rows) from sys.partitions where object_id = object_id(N'{history}') and index_id in (0, 1)),
    (select count_big(*) from {history} where finished_at is not null)
) end as finished
from (
    select count_big(*) as counted from (
        select top (100000) finished_at from {history} where finished_at is not null
    ) as few
) as counts;
