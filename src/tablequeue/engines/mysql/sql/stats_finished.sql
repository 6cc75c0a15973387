-- Of the last :n messages that were completed less than :age seconds ago, the last one first: producer, consumer,
-- seconds of wait and of run, attempts, and how many seconds ago each was completed.
-- Index: {table}__finished. Locks: none.
select
    producer,
    consumer,
    timestampdiff(microsecond, pushed_at, first_popped_at) / 1e6 as wait,
    timestampdiff(microsecond, popped_at, finished_at) / 1e6 as run,
    attempts,
    timestampdiff(microsecond, finished_at, {now}) / 1e6 as ago
from {history} force index ({table}__finished)
where finished_at > {now} - interval :age second and finished_at <= {now} and outcome is null
order by finished_at desc
limit :n;
