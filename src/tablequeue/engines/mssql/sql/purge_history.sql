-- Delete up to :n messages from the history that were finished, or lost, :age seconds ago or longer.
-- Index: {table}__finished. Locks: the rows of one bounded batch; locked rows are skipped.
declare @n bigint = :n;
declare @age float = cast(:age as float);
declare @now datetime2(6) = {now};
declare @before datetime2(6) = {now_less_age};
with gone as (
    select top (@n) id
    from {history} with (index ({table}__finished), rowlock, readpast, updlock, readcommittedlock)
    where finished_at <= @before or (finished_at is null and popped_at <= @before)
)
delete from gone
output deleted.id;
