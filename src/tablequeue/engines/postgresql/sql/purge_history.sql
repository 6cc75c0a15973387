-- Delete up to :n messages from the history that were finished, or lost, :age seconds ago or longer.
-- Index: {table}__finished. Locks: the rows of one bounded batch; locked rows are skipped.
delete from {history}
where id = any(array(
    select id from {history}
    where finished_at <= {now} - cast(:age as float8) * interval '1 second'
        or (finished_at is null and popped_at <= {now} - cast(:age as float8) * interval '1 second')
    limit :n
    for update skip locked
));
