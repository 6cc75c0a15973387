-- A schedule was due at :due. One of all that find it so changes the row, and pushes in the same transaction; the
-- others wait for its commit, and then change nothing. Index: the primary key. Locks: the row.
-- A crash leaves both undone, for the next one to do.
update {schedules} set last_due = cast(:due as datetime(6))
where name = :name and last_due < cast(:due as datetime(6)) and cast(:due as datetime(6)) <= {now};
