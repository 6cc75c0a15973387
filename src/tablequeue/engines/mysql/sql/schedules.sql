-- Periodic messages: their tables and states.

-- name: create_schedules
-- Names are binary, as keys are: blanks at the end count. Like every DDL it commits by itself; a crash leaves the table
-- whole, or none.
create table if not exists {schedules} (
    name varbinary(1020) primary key,
    cron blob not null,
    last_due datetime(6) not null
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: the schedules';

-- name: enter_schedule
-- Index: the primary key. Locks: the row.
insert into {schedules} (name, cron, last_due) values (:name, :cron, {now})
on duplicate key update
    last_due = if({schedules}.cron = cast(:cron as binary), {schedules}.last_due, {now}), cron = :cron;

-- name: schedule_state
-- Index: the primary key.
select last_due, {now}, convert(cron using utf8mb4) from {schedules} where name = :name;

-- name: advance_schedule
-- Index: the primary key. Locks: the row.
-- After a crash neither has happened, and the next process does both.
update {schedules} set last_due = cast(:due as datetime(6))
where name = :name and last_due < cast(:due as datetime(6)) and cast(:due as datetime(6)) <= {now};

-- name: schedules
-- Locks: none.
select convert(name using utf8mb4), convert(cron using utf8mb4), last_due from {schedules} order by name;

-- name: rerun_schedule
-- Index: the primary key. Locks: the row. A crash leaves it as it was.
update {schedules} set last_due = cast(:due as datetime(6)) where name = :name;
