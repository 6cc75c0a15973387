-- The first :n messages that were claimed at most once, :age seconds ago or longer, and not completed.
-- Index: {table}__finished. Locks: none.
select
    {history_columns}
from {history}
where finished_at is null and popped_at <= {now} - cast(:age * 1000000 as integer)
order by id
limit :n;
