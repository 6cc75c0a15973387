-- How many messages that were claimed at most once, :age seconds ago or longer, are not completed, by producer and
-- consumer.
-- Index: {table}__finished, of which it reads what has no time. Locks: none.
select producer, consumer, count(*) as lost
from {history}
where finished_at is null and popped_at <= {now} - cast(:age as float8) * interval '1 second'
group by producer, consumer;
