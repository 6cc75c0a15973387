-- Of the last :n messages that were completed less than :age seconds ago, the last one first: producer, consumer,
-- seconds of wait and of run, attempts, and how many seconds ago each was completed.
-- Index: {table}__finished. Locks: none.
select
    producer,
    consumer,
    cast(extract(epoch from first_popped_at - pushed_at) as float8) as wait,
    cast(extract(epoch from finished_at - popped_at) as float8) as run,
    attempts,
    cast(extract(epoch from {now} - finished_at) as float8) as ago
from {history}
where finished_at > {now} - cast(:age as float8) * interval '1 second' and finished_at <= {now} and outcome is null
order by finished_at desc
limit :n;
