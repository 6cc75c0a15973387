-- Periodic messages: their tables and states.

-- name: enter_schedule
-- Index: the primary key. Locks: the row.
insert into {schedules} (name, cron, last_due) values (:name, :cron, {now})
on conflict (name) do update set cron = excluded.cron, last_due = excluded.last_due
where {schedules}.cron <> excluded.cron;

-- name: schedule_state
-- Index: the primary key.
select last_due, {now}, cron from {schedules} where name = :name;

-- name: schedules
-- Locks: none.
select name, cron, last_due from {schedules} order by name;

-- name: rerun_schedule
-- Index: the primary key. Locks: the row. A crash leaves it as it was.
update {schedules} set last_due = :due where name = :name;
