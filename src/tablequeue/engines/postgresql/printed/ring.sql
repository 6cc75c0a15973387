-- What printed SQL of a fair queue has in place of parameters: see found_between in printed_values.py.

-- name: starts
-- [begin_ring]
{ring_starts}
-- [pop not begin_ring or take not begin_ring]
array[cast(current_setting('tablequeue.{ring_of_session}') as bigint), -9223372036854775808]
-- [end]

-- name: above
-- [pop or take or begin_ring]
{ring_above}
-- [end]

-- name: ends
-- [begin_ring]
{ring_ends}
-- [pop not begin_ring or take not begin_ring]
array[9223372036854775807, cast(current_setting('tablequeue.{ring_of_session}') as bigint)]
-- [end]

-- name: n
-- [begin_ring]
{ring_steps}
-- [end]

-- name: served
-- [pop]
(
    select slot
    from (
        select {slot} as slot, row_number() over (partition by {slot} order by id) as number
        -- [pop at_least_once]
        from {queue} where state = 'in_progress' and token = cast(:token as uuid)
        -- [pop at_most_once]
        from {history} where token = cast(:token as uuid)
        -- [pop]
    ) as claimed
    order by
        number desc, slot <= cast(current_setting('tablequeue.{ring_of_session}') as bigint) desc, slot desc
    limit 1
)
-- [end]
