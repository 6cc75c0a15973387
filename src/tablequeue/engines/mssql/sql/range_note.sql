-- Note as a finished range what a :consumer has read by itself, :age seconds long: all before the offset :start.
-- Nothing is noted while ranges are in progress, which are counted. Indexes: {table}__last, {table}__lease.
-- Locks: range_wait comes before it, so that it sees the last claim.
declare @start bigint = :start;
declare @consumer nvarchar(512) = cast(:consumer as nvarchar(512));
declare @age float = cast(:age as float);
declare @now datetime2(6) = {now};
declare @begun datetime2(6) = {now_less_age};
declare @next bigint;
declare @in_progress bigint;
select top (1) @next = last_offset + 1
from {ranges} with (index ({table}__last), readcommittedlock)
order by id desc;
select @in_progress = count_big(*)
from {ranges}
where lease_until is not null;
insert into {ranges} (first_offset, last_offset, messages, ids_sum, consumer, popped_at, finished_at)
select @next, @start - 1, @start - @next, 0, @consumer, @begun, @now
where @next < @start and @in_progress = 0;
select @in_progress as in_progress;
