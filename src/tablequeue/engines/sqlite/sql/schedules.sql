-- Periodic messages: their tables and states.

-- name: create_schedules
-- Locks: the database. A crash leaves nothing.
create table if not exists {schedules} (
    name text primary key,
    cron text not null,
    last_due integer not null
) strict, without rowid;

-- name: advance_schedule
-- Index: the primary key. Locks: the database.
-- After a crash neither has happened, and the next process does both.
update {schedules} set last_due = :due where name = :name and last_due < :due and :due <= {now};
