-- What printed SQL of a fair queue has in place of parameters: see found_between in printed_values.py.

-- name: served
-- [pop not move_ring or take not move_ring]
cast(session_context({ring_of_session}) as bigint)
-- [pop move_ring]
(
    select top (1) slot
    from (
        select {slot_of_group} as slot, row_number() over (partition by group_key order by id) as number
        -- [pop move_ring at_least_once]
        from {queue} where state = 'in_progress' and token = cast(:token as uniqueidentifier)
        -- [pop move_ring at_most_once]
        from {history} where token = cast(:token as uniqueidentifier)
        -- [pop move_ring]
    ) as claimed
    order by
        number desc, case when slot > cast(session_context({ring_of_session}) as bigint) then 0 else 1 end desc,
        slot desc
)
-- [end]
