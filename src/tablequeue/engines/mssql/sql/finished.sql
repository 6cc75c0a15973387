-- The last :n messages with ids from :low to :high that were finished from :since on and before :until, by id, the
-- highest first.
-- Indexes: the primary key, {table}__finished. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option: shared
-- locks while it reads, and it waits for transactions that change a row.
declare @n bigint = :n;
declare @low bigint = :low;
declare @high bigint = :high;
declare @since datetime2(6) = cast(:since as datetime2(6));
declare @until datetime2(6) = cast(:until as datetime2(6));
select top (@n)
    {history_columns}
from {history}
where id between @low and @high and finished_at >= @since and finished_at < @until
order by id desc;
