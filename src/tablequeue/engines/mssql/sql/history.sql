-- The last :n finished messages with ids from :low to :high, highest id first. Index: the primary key.
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option: shared locks while it reads, and it waits for
-- transactions that change a row.
declare @n bigint = :n;
declare @low bigint = :low;
declare @high bigint = :high;
select top (@n)
    {history_columns}
from {history}
where id between @low and @high
order by id desc;
