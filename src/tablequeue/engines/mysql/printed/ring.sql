-- What printed SQL of a fair queue has in place of parameters: see found_between in printed_values.py.

-- name: served
-- [pop fair]
@`tablequeue.{table}.ring`
-- [end]

-- name: ids
-- [pop fair]
@tq_wanted
-- [end]

-- name: slots
-- [pop fair]
@tq_slots
-- [end]

-- name: by_group
-- [pop fair]
@tq_rooms
-- [end]

-- name: rows
-- [pop fair]
@tq_wanted
-- [end]
