-- What the texts of topics and subscriptions have in common.

-- name: finished_messages
-- The messages that a range has finished; see `create_ranges`.
(
    coalesce(json_length(left_ids), case when finished_at is not null then messages else 0 end)
    - coalesce(json_length(apart_ids), 0)
)

-- name: pieces
-- The ranges, each with the intervals of ids that it has: a row for each.
(
    select
        claimed.id as range_id, messages, consumer, popped_at, lease_until, finished_at, left_ids, apart_ids,
        {finished_messages} as finished, interval_of.low, interval_of.high
    from {ranges} as claimed
    straight_join json_table(
        claimed.pieces, '$[*]' columns (low bigint path '$[0]', high bigint path '$[1]')
    ) as interval_of
)

-- name: unclaimed
-- The intervals of ids that have offsets, from the position of the subscription on.
(
    select first_id + greatest(position - first_offset, 0) as low, last_id as high
    from {runs}
    cross join (
        select greatest(
            (select last_offset + 1 from {ranges} order by id desc limit 1),
            (select first_offset + 1 from {runs} order by first_offset limit 1)
        ) as position
    ) as next
    where first_offset + last_id - first_id >= position
)
