-- Delete up to :n messages from the history that were finished, or lost, :age seconds ago or longer.
-- Index: {table}__finished. Locks: the rows of one bounded batch; locked rows are skipped.
-- Two looks, each in the order of that index: with an `or`, or without the order, a generic plan reads the whole
-- history, in the expectation that a third of it is old enough.
delete from {history}
where id = any(array(
    select id
    from (
        select id from (
            select id from {history}
            where finished_at <= {now} - cast(:age as float8) * interval '1 second'
            order by finished_at
            limit :n
            for update skip locked
        ) as finished
        union all
        select id from (
            select id from {history}
            where finished_at is null and popped_at <= {now} - cast(:age as float8) * interval '1 second'
            order by finished_at
            limit :n
            for update skip locked
        ) as lost
    ) as old
    limit :n
));
