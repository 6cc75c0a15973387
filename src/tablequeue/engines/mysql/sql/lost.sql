-- The first :n messages that were claimed at most once, :age seconds ago or longer, and not completed.
-- Index: {table}__finished, which has them by id. Locks: none.
select
    {history_columns}
from {history} force index ({table}__finished)
where finished_at is null and popped_at <= {now} - interval :age second
order by id
limit :n;
