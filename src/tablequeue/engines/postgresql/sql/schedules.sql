-- Periodic messages: their tables and states.

-- name: create_schedules
-- The schedules of periodic pushes: for each its expression with its zone, and the last due time that was pushed.
-- Made with the first schedule. Under the creators' lock. A crash leaves nothing.
create table if not exists {schedules} (
    name text primary key,
    cron text not null,
    last_due timestamptz not null
);

-- name: advance_schedule
-- Mark a schedule as pushed for :due. Of several processes that find it due, one changes the row, and pushes in the
-- same transaction. The others wait for its commit, and then change nothing.
-- Index: the primary key. Locks: the row.
-- After a crash neither has happened, and the next process does both.
update {schedules} set last_due = cast(:due as timestamptz)
where name = :name and last_due < cast(:due as timestamptz) and cast(:due as timestamptz) <= {now};

-- name: rerun_schedule
-- Make a schedule due: it counts as never pushed, so the next worker that looks pushes its message for the last due
-- time. Index: the primary key. Locks: the row. A crash leaves it as it was.
update {schedules} set last_due = cast(:due as timestamptz) where name = :name;
