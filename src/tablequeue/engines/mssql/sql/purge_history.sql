-- Delete up to :n messages from the history that were finished, or lost, :age seconds ago or longer.
-- Index: {table}__finished. Locks: the rows of one bounded batch; locked rows are skipped.
declare @n bigint = :n;
declare @age float = cast(:age as float);
declare @now datetime2(6) = {now};
declare @before datetime2(6) = {now_less_age};
-- [results]
declare @gone table (id bigint not null primary key);
-- [end]
with gone as (
    select top (@n) id
    from {history} with (index ({table}__finished), rowlock, readpast, updlock, readcommittedlock)
    where finished_at <= @before or (finished_at is null and popped_at <= @before)
)
delete from gone
-- [not results]
output deleted.id;
-- [end]
-- [results]
output deleted.id into @gone (id);
delete from {results} where id in (select id from @gone);
select id from @gone;
-- [end]
