-- Who pushed and finished the last :n messages of those finished less than :age seconds ago, the last one first: the
-- seconds that each waited and ran, its attempts, and how many seconds ago it was finished.
-- Index: {table}__finished. Locks: none.
select
    producer,
    consumer,
    timestampdiff(microsecond, pushed_at, first_popped_at) / 1e6 as wait,
    timestampdiff(microsecond, popped_at, finished_at) / 1e6 as run,
    attempts,
    timestampdiff(microsecond, finished_at, {now}) / 1e6 as ago
from {history} force index ({table}__finished)
where finished_at > {now} - interval :age second and finished_at <= {now}
order by finished_at desc
limit :n;
