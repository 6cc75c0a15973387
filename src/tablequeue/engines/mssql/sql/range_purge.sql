-- Delete the ranges that have no message any more at or after the offset :start, but for the last one, after which the
-- next claim begins. 1,000 a statement, each for itself: a crash leaves the others for the next call.
-- Indexes: {table}__last, the primary key. Locks: the rows; locked rows are skipped.
declare @start bigint = :start;
declare @last bigint;
declare @deleted bigint = 1000;
select top (1) @last = id
from {ranges} with (index ({table}__last), readcommittedlock)
order by id desc;
while @deleted = 1000
begin
    delete top (1000) from {ranges} with (rowlock, readpast, readcommittedlock)
    where id < @last and last_offset < @start and lease_until is null;
    set @deleted = rowcount_big();
end;
