-- Of the last :n messages that the last :n ranges finished less than :age seconds ago, the last one first: producer,
-- consumer, seconds of wait and of run, attempts, and how many seconds ago each was finished. Messages that left a
-- range have the time of the last ones that did.
-- Indexes: the primary keys. Locks: none.
with spans as materialized (
    select
        consumer, popped_at, finished_at, left_ids, apart_ids, low, high,
        greatest(high - low + 1 - (messages - finished), 0) as sure,
        sum(greatest(high - low + 1 - (messages - finished), 0))
            over (order by finished_at desc rows unbounded preceding) as so_far
    from {pieces} as piece
    where finished > 0 and finished_at > {now} - cast(:age as float8) * interval '1 second' and finished_at <= {now}
        and range_id >= (select min(id) from (select id from {ranges} order by id desc limit :n) as claimed)
)
select
    producer,
    consumer,
    cast(extract(epoch from popped_at - pushed_at) as float8) as wait,
    cast(extract(epoch from finished_at - popped_at) as float8) as run,
    1 as attempts,
    cast(extract(epoch from {now} - finished_at) as float8) as ago
from spans
cross join lateral (
    select producer, pushed_at
    from {log}
    where id between low and high
        and (left_ids is null or id = any(left_ids)) and (apart_ids is null or id <> all(apart_ids))
    limit :n
) as log
where so_far - sure < :n
order by finished_at desc
limit :n;
