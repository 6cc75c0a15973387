-- Periodic messages: their tables and states.

-- name: create_schedules
-- The schedules of periodic pushes: for each its expression with its zone, and the last due time that was pushed.
-- Made with the first schedule.
-- The name is the bytes of its text, as a key is (see create), and too long for a clustered key.
-- Under the creators' lock. A crash leaves nothing.
if object_id(N'{schedules}', N'U') is null
    create table {schedules} (
        name varbinary(1020) not null constraint pk_tq__schedules primary key nonclustered,
        cron nvarchar(max) not null,
        last_due datetime2(6) not null
    );

-- name: enter_schedule
-- Insert a schedule, as if it had been due now. One that is there with another expression gets this one, and is due as
-- from now on, because no message is missing for the times before. Index: the primary key. Locks: the row.
-- If two insert it at once, the primary key refuses the second one (error 2627), which tries again.
declare @name varbinary(1020) = convert(varbinary(1020), cast(:name as nvarchar(510)));
declare @now datetime2(6) = {now};
declare @cron nvarchar(max) = cast(:cron as nvarchar(max));
update {schedules} with (rowlock) set cron = @cron, last_due = @now
where name = @name and convert(varbinary(max), cron) <> convert(varbinary(max), @cron);
insert into {schedules} (name, cron, last_due)
select @name, @cron, @now
where not exists (select 1 from {schedules} as there with (updlock, readcommittedlock) where there.name = @name);

-- name: schedule_state
-- When a schedule was last due and pushed, what time it is by the database's clock, and the expression of the schedule.
-- Index: the primary key.
declare @name varbinary(1020) = convert(varbinary(1020), cast(:name as nvarchar(510)));
declare @now datetime2(6) = {now};
select last_due, @now as now, cron from {schedules} where name = @name;

-- name: advance_schedule
-- Mark a schedule as pushed for :due. Of several processes that find it due, one changes the row, and pushes in the
-- same transaction. The others wait for its commit, and then change nothing.
-- Index: the primary key. Locks: the row.
-- After a crash neither has happened, and the next process does both. The answer is the row, if it was changed.
declare @name varbinary(1020) = convert(varbinary(1020), cast(:name as nvarchar(510)));
declare @due datetime2(6) = cast(:due as datetime2(6));
declare @now datetime2(6) = {now};
update {schedules} with (rowlock) set last_due = @due
output inserted.last_due
where name = @name and last_due < @due and @due <= @now;

-- name: schedules
-- All schedules, by name: each with its expression, and when it was last due and pushed. Locks: none under
-- READ_COMMITTED_SNAPSHOT. Without that option: shared locks while it reads.
select convert(nvarchar(510), name) as name, cron, last_due from {schedules} order by name;

-- name: rerun_schedule
-- Make a schedule due: it counts as never pushed, so the next worker that looks pushes its message for the last due
-- time. Index: the primary key. Locks: the row. A crash leaves it as it was.
declare @name varbinary(1020) = convert(varbinary(1020), cast(:name as nvarchar(510)));
declare @due datetime2(6) = cast(:due as datetime2(6));
update {schedules} with (rowlock) set last_due = @due
where name = @name;
