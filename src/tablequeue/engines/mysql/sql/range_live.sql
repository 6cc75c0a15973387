-- The last :n messages with ids from :low to :high that are live, in whatever state, highest id first: those apart,
-- those that ranges in progress hold, and those that no range has, which are :ids (see range_ready). As a message
-- apart, it comes once.
-- Indexes: the primary keys, {table}__lease, that of the runs by last_id. Locks: none.
with ready as (
    select log.* from {given} straight_join {log} as log force index (primary) on log.id = given.id
)
select
    {live_columns with
        group_key = group_key
        dedup_key = dedup_key
        finished_at = finished_at}
from (
    select
        {live_columns with
            group_key = group_key
            dedup_key = dedup_key
            finished_at = finished_at},
        row_number() over (partition by id order by attempts desc) as place
    from (
        (
            select
                {live_columns}
            from {queue}
            where id between :low and :high
            order by id desc
            limit :n
        )
        union all
        select
            {log_columns with
                state = 'in_progress' as state
                lease_until = lease_until
                finished_at = cast(null as datetime(6)) as finished_at}
        from {pieces} as piece
        straight_join {log} as log force index (primary) on log.id between piece.low and piece.high
        where lease_until is not null and log.id between :low and :high
            and (left_ids is null or not json_contains(left_ids, cast(log.id as char)))
        union all
        select
            {log_columns with
                state = 'ready' as state
                attempts = 0 as attempts
                consumer = null as consumer
                first_popped_at = cast(null as datetime(6)) as first_popped_at
                popped_at = cast(null as datetime(6)) as popped_at
                finished_at = cast(null as datetime(6)) as finished_at}
        from ready
    ) as each_one
) as live
where place = 1
order by id desc
limit :n;
