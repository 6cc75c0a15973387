-- How many messages that were claimed at most once, :age seconds ago or longer, are not completed, by producer and
-- consumer.
-- Index: {table}__finished, of which it reads what has no time. Locks: none under READ_COMMITTED_SNAPSHOT. Without that
-- option: shared locks while it reads, and it waits for transactions that change a row.
declare @age float = cast(:age as float);
declare @now datetime2(6) = {now};
declare @before datetime2(6) = {now_less_age};
select producer, consumer, count_big(*) as lost
from {history}
where finished_at is null and popped_at <= @before
group by producer, consumer;
