-- Who pushed and finished the last :n messages of those finished less than :age seconds ago, the last one first: the
-- seconds that each waited and ran, its attempts, and how many seconds ago it was finished.
-- Index: {table}__finished. Locks: none.
select
    producer,
    consumer,
    (first_popped_at - pushed_at) / 1e6 as wait,
    (finished_at - popped_at) / 1e6 as run,
    attempts,
    ({now} - finished_at) / 1e6 as ago
from {history}
where finished_at > {now} - cast(:age * 1000000 as integer) and finished_at <= {now}
order by finished_at desc
limit :n;
