-- Of the last :n messages that the last :n ranges finished less than :age seconds ago, the last one first: producer,
-- consumer, seconds of wait and of run, attempts, and how many seconds ago each was finished. Messages that left a
-- range have the time of the last ones that did.
-- Index: the primary keys. Locks: none.
with spans as (
    select
        consumer, popped_at, finished_at, left_ids, apart_ids, low, high,
        greatest(high - low + 1 - (messages - finished), 0) as sure,
        sum(greatest(high - low + 1 - (messages - finished), 0))
            over (order by finished_at desc rows unbounded preceding) as so_far
    from {pieces} as piece
    where finished > 0 and finished_at > {now} - interval :age second and finished_at <= {now}
        and range_id >= (select min(id) from (select id from {ranges} order by id desc limit :n) as claimed)
)
select
    producer,
    consumer,
    timestampdiff(microsecond, pushed_at, popped_at) / 1e6 as wait,
    timestampdiff(microsecond, popped_at, finished_at) / 1e6 as run,
    1 as attempts,
    timestampdiff(microsecond, finished_at, {now}) / 1e6 as ago
from spans
straight_join {log} as log force index (primary) on log.id between spans.low and spans.high
where so_far - sure < :n
    and (left_ids is null or json_contains(left_ids, cast(log.id as char)))
    and (apart_ids is null or not json_contains(apart_ids, cast(log.id as char)))
order by finished_at desc
limit :n;
