-- Enter a schedule, if it is not there: nothing was due before now.
-- Two that enter it at the same moment: the primary key refuses the second (error 2627), which is tried again.
-- Index: the primary key. Locks: the row.
declare @name varbinary(1020) = convert(varbinary(1020), cast(:name as nvarchar(510)));
declare @now datetime2(6) = {now};
insert into {schedules} (name, last_due)
select @name, @now
where not exists (select 1 from {schedules} as there with (updlock, readcommittedlock) where there.name = @name);
