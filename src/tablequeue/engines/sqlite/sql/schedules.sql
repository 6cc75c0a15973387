-- Periodic messages: their tables and states.

-- name: create_schedules
-- The schedules of periodic pushes: for each its expression with its zone, and the last due time that was pushed.
-- Made with the first schedule. Locks: the database. A crash leaves nothing.
create table if not exists {schedules} (
    name text primary key,
    cron text not null,
    last_due integer not null
) strict, without rowid;

-- name: advance_schedule
-- Mark a schedule as pushed for :due. Of several processes that find it due, one changes the row, and pushes in the
-- same transaction. The others wait for its commit, and then change nothing.
-- Index: the primary key. Locks: the database.
-- After a crash neither has happened, and the next process does both.
update {schedules} set last_due = :due where name = :name and last_due < :due and :due <= {now};
