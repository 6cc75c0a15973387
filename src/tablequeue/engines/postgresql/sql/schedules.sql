-- Periodic messages: their tables and states.

-- name: create_schedules
-- Under the creators' lock. A crash leaves nothing.
create table if not exists {schedules} (
    name text primary key,
    cron text not null,
    last_due timestamptz not null
);

-- name: advance_schedule
-- Index: the primary key. Locks: the row.
-- After a crash neither has happened, and the next process does both.
update {schedules} set last_due = cast(:due as timestamptz)
where name = :name and last_due < cast(:due as timestamptz) and cast(:due as timestamptz) <= {now};

-- name: rerun_schedule
-- Index: the primary key. Locks: the row. A crash leaves it as it was.
update {schedules} set last_due = cast(:due as timestamptz) where name = :name;
