-- What the texts of topics and subscriptions have in common.

-- name: last_id
-- The id above which there are new messages only: those of transactions in flight, or which have no offsets yet.
greatest(
    (select last_id from {runs} order by last_id desc limit 1),
    (select last_id from {holes} order by first_id desc limit 1),
    (select last_id from {parts} order by first_id desc limit 1)
)

-- name: finished_messages
-- The messages that a range has finished; see `create_ranges`.
(
    coalesce(cardinality(left_ids), case when finished_at is not null then messages else 0 end)
    - coalesce(cardinality(apart_ids), 0)
)

-- name: pieces
-- The ranges, each with the intervals of ids that it has: a row for each.
(
    select
        range.id as range_id, range.first_offset, last_offset, messages, consumer, popped_at, lease_until,
        finished_at, left_ids, apart_ids, {finished_messages} as finished,
        run.first_id + greatest(range.first_offset - run.first_offset, 0) as low,
        least(run.last_id, run.first_id + range.last_offset - run.first_offset) as high
    from {ranges} as range
    join {runs} as run
        on run.first_offset >= coalesce(
            (select max(first_offset) from {runs} where first_offset <= range.first_offset), 0
        ) and run.first_offset <= range.last_offset
)

-- name: unclaimed
-- The intervals of ids that no range has, and that have messages after the position of the subscription; `messages` is
-- the number of them that are sure to be there.
(
    with next as (
        select greatest(last_offset + 1, (select min(first_offset) + 1 from {runs})) as position
        from {ranges} order by id desc limit 1
    ), unclaimed as (
        select first_id + greatest(position - first_offset, 0) as low, last_id as high
        from {runs}
        cross join next
        where first_offset >= (select max(first_offset) from {runs} where first_offset <= position)
            and first_offset + last_id - first_id >= position
    )
    select low, high, high - low + 1 as messages from unclaimed
    union all
    select {last_id} + 1, 9223372036854775807, 0
    union all
    select first_id, last_id, 0 from {holes}
)
