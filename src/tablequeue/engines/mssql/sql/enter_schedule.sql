-- Insert a schedule if it is not there, as if it had been due now.
-- If two insert it at once, the primary key refuses the second one (error 2627), which tries again.
-- Index: the primary key. Locks: the row.
declare @name varbinary(1020) = convert(varbinary(1020), cast(:name as nvarchar(510)));
declare @now datetime2(6) = {now};
insert into {schedules} (name, last_due)
select @name, @now
where not exists (select 1 from {schedules} as there with (updlock, readcommittedlock) where there.name = @name);
