-- Mark a schedule as pushed for :due. Of several processes that find it due, one changes the row, and pushes in the
-- same transaction. The others wait for its commit, and then change nothing.
-- Index: the primary key. Locks: the row.
-- A crash leaves neither, and the next process does both. The answer is the row, if it was changed.
declare @name varbinary(1020) = convert(varbinary(1020), cast(:name as nvarchar(510)));
declare @due datetime2(6) = cast(:due as datetime2(6));
declare @now datetime2(6) = {now};
update {schedules} with (rowlock) set last_due = @due
output inserted.last_due
where name = @name and last_due < @due and @due <= @now;
