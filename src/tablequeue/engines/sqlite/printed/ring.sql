-- What printed SQL of a fair queue has in place of parameters: see found_between in printed_values.py.

-- name: served
-- [pop]
coalesce((
    select slot
    from (
        select {slot} as slot, row_number() over (partition by {slot} order by id) as number
        -- [pop at_least_once]
        from {queue} where state = 'in_progress' and token = :token
        -- [pop at_most_once]
        from {history} where token = :token
        -- [pop]
    )
    order by number desc, slot <= (select served from {ring}) desc, slot desc
    limit 1
), served)
-- [end]
