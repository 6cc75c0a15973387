-- What the texts of dependencies have in common.

-- name: of_awaited
-- Whether the message is there for which the row `waiting` waits, and whether it is a dead letter.
outer apply (
    select 1 as is_there from {source} as other with (forceseek) where other.id = waiting.on_id
) as there
outer apply (
    select 1 as is_dead from {source} as other with (forceseek) where other.id = waiting.on_id and other.state = 'dead'
) as died

-- name: has_ended
-- Whether that message does not hold up the other one any more.
(there.is_there is null or (died.is_dead = 1 and waiting.on_dead <> 'wait'))
