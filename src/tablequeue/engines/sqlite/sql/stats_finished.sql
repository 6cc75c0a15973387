-- Of the last :n messages that were completed less than :age seconds ago, the last one first: producer, consumer,
-- seconds of wait and of run, attempts, and how many seconds ago each was completed.
-- Index: {table}__finished. Locks: none.
select
    producer,
    consumer,
    (first_popped_at - pushed_at) / 1e6 as wait,
    (finished_at - popped_at) / 1e6 as run,
    attempts,
    ({now} - finished_at) / 1e6 as ago
from {history}
where finished_at > {now} - cast(:age * 1000000 as integer) and finished_at <= {now} and outcome is null
order by finished_at desc
limit :n;
