-- The last :n messages with ids from :low to :high finished from :since on and before :until, highest id first: those
-- that ranges finished (with :final only those that are not in progress any more), if the log still has them, and those
-- of the history of the subscription. Messages that left a range have the time of the last ones that did. If a message
-- was finished again after a seek, its last pop counts.
-- Of the ranges only the first ones are read into, which have so many finished messages, whatever was read again.
-- Index: the primary keys; all ranges are read. Locks: none.
with spans as materialized (
    select
        consumer, popped_at, finished_at, left_ids, apart_ids, messages - {finished_messages} as others,
        max(first_offset, :low) as low, min(last_offset, :high) as high
    from {ranges}
    where {finished_messages} > 0 and (lease_until is null or not :final)
        and finished_at >= :since and finished_at < :until
        and first_offset <= :high and last_offset >= :low
), counted as (
    select low, sure, sum(sure) over (order by low desc rows unbounded preceding) as so_far
    from (select low, max(high - low + 1 - others, 0) as sure from spans) as each_one
), reach as (
    select min(low) as low
    from counted
    where so_far - sure < :n * (1 + (select count(*) from {ranges} where messages = 0))
)
-- With max() the other columns are those of the row that has the maximum.
select
    {log_columns with
        state = state
        attempts = attempts
        priority = priority
        dedup_key = dedup_key
        due_at = due_at
        first_popped_at = first_popped_at
        popped_at = max(popped_at) as popped_at
        errors = errors}
from (
    select
        {log_columns}
    from spans
    join {log} as log on log.id between spans.low and spans.high
    where high >= (select low from reach)
        and (left_ids is null or log.id in (select value from json_each(left_ids)))
        and (apart_ids is null or log.id not in (select value from json_each(apart_ids)))
    union all
    select * from (
        select
            {history_columns}
        from {history}
        where id between :low and :high and finished_at >= :since and finished_at < :until
        order by id desc
        limit :n
    )
) as finished
group by id
order by id desc
limit :n;
