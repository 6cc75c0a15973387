-- Periodic messages: their tables and states.

-- name: create_schedules
-- The schedules of periodic pushes: for each, the last time it was due that was pushed. Made with the first schedule.
-- Like every DDL it commits by itself; a crash leaves the table whole, or none.
create table if not exists {schedules} (
    name varchar(255) character set utf8mb4 collate utf8mb4_bin primary key,
    last_due datetime(6) not null
) engine = InnoDB, row_format = dynamic, comment = 'tablequeue: the schedules';

-- name: enter_schedule
-- Insert a schedule if it is not there, as if it had been due now. Index: the primary key.
insert into {schedules} (name, last_due) values (:name, {now}) on duplicate key update name = {schedules}.name;

-- name: advance_schedule
-- Mark a schedule as pushed for :due. Of several processes that find it due, one changes the row, and pushes in the
-- same transaction. The others wait for its commit, and then change nothing.
-- Index: the primary key. Locks: the row.
-- After a crash neither has happened, and the next process does both.
update {schedules} set last_due = cast(:due as datetime(6))
where name = :name and last_due < cast(:due as datetime(6)) and cast(:due as datetime(6)) <= {now};
