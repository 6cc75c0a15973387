-- Delete up to :n messages from the history that were finished, or lost, :age seconds ago or longer.
-- Index: {table}__finished. Locks: the database, for the length of one bounded batch.
delete from {history}
where id in (
    select id from {history}
    where finished_at <= {now} - cast(:age * 1000000 as integer)
        or (finished_at is null and popped_at <= {now} - cast(:age * 1000000 as integer))
    limit :n
);
