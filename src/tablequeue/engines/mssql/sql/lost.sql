-- The first :n messages that were claimed at most once, :age seconds ago or longer, and not completed.
-- Index: {table}__finished. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option: shared locks while it
-- reads, and it waits for transactions that change a row.
declare @n bigint = :n;
declare @age float = cast(:age as float);
declare @now datetime2(6) = {now};
declare @before datetime2(6) = {now_less_age};
select top (@n)
    {history_columns}
from {history}
where finished_at is null and popped_at <= @before
order by id;
