-- A schedule was due at :due. One of all that find it so changes the row, and pushes in the same transaction; the
-- others wait for its commit, and then change nothing. Index: the primary key. Locks: the database.
-- A crash leaves both undone, for the next one to do.
update {schedules} set last_due = :due where name = :name and last_due < :due and :due <= {now};
