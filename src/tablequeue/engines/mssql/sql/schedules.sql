-- Periodic messages: their tables and states.

-- name: create_schedules
-- The name is the bytes of its text, as a key is (see create), and too long for a clustered key.
-- Under the creators' lock. A crash leaves nothing.
if object_id(N'{schedules}', N'U') is null
    create table {schedules} (
        name varbinary(1020) not null constraint pk_tq__schedules primary key nonclustered,
        cron nvarchar(max) not null,
        last_due datetime2(6) not null
    );

-- name: enter_schedule
-- Index: the primary key. Locks: the row. If two insert it at once, the primary key refuses the second one (error
-- 2627), which tries again.
update {schedules} with (rowlock) set cron = @cron, last_due = @now
where name = @name and convert(varbinary(max), cron) <> convert(varbinary(max), @cron);
insert into {schedules} (name, cron, last_due)
select @name, @cron, @now
where not exists (select 1 from {schedules} as there with (updlock, readcommittedlock) where there.name = @name);

-- name: schedule_state
-- Index: the primary key.
select last_due, @now as now, cron from {schedules} where name = @name;

-- name: advance_schedule
-- Index: the primary key. Locks: the row.
-- After a crash neither has happened, and the next process does both. The answer is the row, if it was changed.
update {schedules} with (rowlock) set last_due = @due
output inserted.last_due
where name = @name and last_due < @due and @due <= @now;

-- name: schedules
-- Locks: none under READ_COMMITTED_SNAPSHOT. Without that option: shared locks while it reads.
select convert(nvarchar(510), name) as name, cron, last_due from {schedules} order by name;

-- name: rerun_schedule
-- Index: the primary key. Locks: the row. A crash leaves it as it was.
update {schedules} with (rowlock) set last_due = @due
where name = @name;
