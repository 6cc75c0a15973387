-- Enter a schedule, if it is not there: nothing was due before now.
-- Index: the primary key. Locks: the place of the name, so that of two that enter it at once the second finds it.
declare @name nvarchar(255) = cast(:name as nvarchar(255));
declare @now datetime2(6) = {now};
insert into {schedules} (name, last_due)
select @name, @now
where not exists (select 1 from {schedules} as there with (updlock, readcommittedlock) where there.name = @name);
