-- The last :n messages with ids from :low to :high finished from :since on and before :until, highest id first: those
-- that ranges finished (with :final only those that are not in progress any more), if the log still has them, and those
-- of the history of the subscription. Messages that left a range have the time of the last ones that did. If a message
-- was finished again after a seek, its last pop counts.
-- Of the intervals of ids only the first ones are read, which have so many finished messages, whatever was read again.
-- Indexes: the primary keys, that of the runs by last_id; all ranges are read. Locks: none.
with spans as materialized (
    select
        consumer, popped_at, finished_at, left_ids, apart_ids, messages - finished as others,
        greatest(low, :low) as low, least(high, :high) as high
    from {pieces} as piece
    where finished > 0 and (lease_until is null or not cast(:final as boolean))
        and finished_at >= :since and finished_at < :until and low <= :high and high >= :low
        and first_offset <= (
            select max(first_offset + last_id - first_id) from {runs} where last_id >= :low and first_id <= :high
        )
        and last_offset >= (select min(first_offset) from {runs} where last_id >= :low and first_id <= :high)
), counted as (
    select low, sure, sum(sure) over (order by low desc rows unbounded preceding) as so_far
    from (select low, greatest(high - low + 1 - others, 0) as sure from spans) as each_one
), reach as (
    select min(low) as low
    from counted
    where so_far - sure < :n * (1 + (select count(*) from {ranges} where messages = 0))
)
select distinct on (id) *
from (
    select
        {log_columns}
    from spans
    cross join lateral (
        select *
        from {log}
        where id between low and high
            and (left_ids is null or id = any(left_ids)) and (apart_ids is null or id <> all(apart_ids))
        order by id desc
        limit :n
    ) as log
    where high >= (select low from reach)
    union all
    (
        select
            {history_columns}
        from {history}
        where id between :low and :high and finished_at >= :since and finished_at < :until
        order by id desc
        limit :n
    )
) as finished
order by id desc, popped_at desc
limit :n;
