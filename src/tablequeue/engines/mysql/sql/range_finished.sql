-- The last :n messages with ids from :low to :high finished from :since on and before :until, highest id first: those
-- that ranges finished (with :final only those that are not in progress any more), if the log still has them, and those
-- of the history of the subscription. Messages that left a range have the time of the last ones that did. If a message
-- was finished again after a seek, its last pop counts.
-- Of the intervals of ids only the first ones are read, which have so many finished messages, whatever was read again.
-- Indexes: the primary keys; all ranges are read. Locks: none.
with spans as (
    select
        consumer, popped_at, finished_at, left_ids, apart_ids, messages - finished as others,
        greatest(low, :low) as low, least(high, :high) as high
    from {pieces} as piece
    where finished > 0 and (lease_until is null or not :final)
        and finished_at >= :since and finished_at < :until and low <= :high and high >= :low
), counted as (
    select low, sure, sum(sure) over (order by low desc rows unbounded preceding) as so_far
    from (select low, greatest(high - low + 1 - others, 0) as sure from spans) as each_one
), reach as (
    select min(low) as low
    from counted
    where so_far - sure < :n * (1 + (select count(*) from {ranges} where messages = 0))
)
select
    {history_columns with
        state = state
        group_key = group_key
        dedup_key = dedup_key
        lease_until = lease_until}
from (
    select
        {history_columns with
            state = state
            group_key = group_key
            dedup_key = dedup_key
            lease_until = lease_until},
        row_number() over (partition by id order by popped_at desc) as place
    from (
        select
            {log_columns}
        from spans
        straight_join {log} as log force index (primary) on log.id between spans.low and spans.high
        where spans.high >= (select low from reach)
            and (left_ids is null or json_contains(left_ids, cast(log.id as char)))
            and (apart_ids is null or not json_contains(apart_ids, cast(log.id as char)))
        union all
        (
            select
                {history_columns}
            from {history}
            where id between :low and :high and finished_at >= :since and finished_at < :until
            order by id desc
            limit :n
        )
    ) as each_one
) as finished
where place = 1
order by id desc
limit :n;
