-- The last :n messages of a queue with ids from :low to :high, in whatever state, highest id first.
-- Index: the primary key. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option: shared locks while it reads,
-- and it waits for transactions that change a row.
declare @n bigint = :n;
declare @low bigint = :low;
declare @high bigint = :high;
select top (@n)
    {live_columns}
from {queue}
where id between @low and @high
order by id desc;
