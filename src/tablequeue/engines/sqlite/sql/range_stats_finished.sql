-- Of the last :n messages that the last :n ranges finished less than :age seconds ago, the last one first: producer,
-- consumer, seconds of wait and of run, attempts, and how many seconds ago each was finished. Messages that left a
-- range have the time of the last ones that did.
-- Index: the primary keys. Locks: none.
with spans as materialized (
    select
        consumer, popped_at, finished_at, left_ids, apart_ids, first_offset, last_offset, finished,
        sum(finished) over (order by finished_at desc rows unbounded preceding) as so_far
    from (
        select *, {finished_messages} as finished
        from {ranges}
        where id >= (select min(id) from (select id from {ranges} order by id desc limit :n))
    )
    where finished > 0 and finished_at > {now} - cast(:age * 1000000 as integer) and finished_at <= {now}
)
select
    producer,
    consumer,
    (popped_at - pushed_at) / 1e6 as wait,
    (finished_at - popped_at) / 1e6 as run,
    1 as attempts,
    ({now} - finished_at) / 1e6 as ago
from spans
join {log} as log on log.id between first_offset and last_offset
where so_far - finished < :n
    and (left_ids is null or log.id in (select value from json_each(left_ids)))
    and (apart_ids is null or log.id not in (select value from json_each(apart_ids)))
order by finished_at desc
limit :n;
