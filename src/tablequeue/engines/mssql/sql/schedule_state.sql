-- When a schedule was last due and pushed, and what time it is by the database's clock. Index: the primary key.
declare @name varbinary(1020) = convert(varbinary(1020), cast(:name as nvarchar(510)));
declare @now datetime2(6) = {now};
select last_due, @now as now from {schedules} where name = @name;
