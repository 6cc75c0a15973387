-- Mark a schedule as pushed for :due. Of several processes that find it due, one changes the row, and pushes in the
-- same transaction. The others wait for its commit, and then change nothing.
-- Index: the primary key. Locks: the database.
-- A crash leaves neither, and the next process does both.
update {schedules} set last_due = :due where name = :name and last_due < :due and :due <= {now};
