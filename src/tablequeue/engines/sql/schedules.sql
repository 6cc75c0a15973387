-- Periodic messages: their tables and states.

-- name: enter_schedule
-- Insert a schedule, as if it had been due now. One that is there with another expression gets this one, and is due as
-- from now on, because no message is missing for the times before. Index: the primary key. Locks: the row.
insert into {schedules} (name, cron, last_due) values (:name, :cron, {now})
on conflict (name) do update set cron = excluded.cron, last_due = excluded.last_due
where {schedules}.cron <> excluded.cron;

-- name: schedule_state
-- When a schedule was last due and pushed, what time it is by the database's clock, and the expression of the schedule.
-- Index: the primary key.
select last_due, {now}, cron from {schedules} where name = :name;

-- name: schedules
-- All schedules, by name: each with its expression, and when it was last due and pushed. Locks: none.
select name, cron, last_due from {schedules} order by name;

-- name: rerun_schedule
-- Make a schedule due: it counts as never pushed, so the next worker that looks pushes its message for the last due
-- time. Index: the primary key. Locks: the row. A crash leaves it as it was.
update {schedules} set last_due = :due where name = :name;
