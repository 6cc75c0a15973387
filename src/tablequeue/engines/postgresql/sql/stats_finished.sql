-- Who pushed and finished the last :n messages of those finished less than :age seconds ago, the last one first: the
-- seconds that each waited and ran, its attempts, and how many seconds ago it was finished.
-- Index: {table}__finished. Locks: none.
select
    producer,
    consumer,
    cast(extract(epoch from first_popped_at - pushed_at) as float8) as wait,
    cast(extract(epoch from finished_at - popped_at) as float8) as run,
    attempts,
    cast(extract(epoch from {now} - finished_at) as float8) as ago
from {history}
where finished_at > {now} - cast(:age as float8) * interval '1 second' and finished_at <= {now}
order by finished_at desc
limit :n;
