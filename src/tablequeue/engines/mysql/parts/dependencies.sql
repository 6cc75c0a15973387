-- Parts about messages that wait until others have left their queues.

-- name: still_waits
-- Whether the dead letter {of} has a head, and so still waits: it has expired. Redriven, it is due at :due
-- until a sweep finds that it waits for nothing. The index is forced, because an update locks what its subqueries read:
-- by another index it would wait for a push in an open transaction, whose messages wait for others.
exists (
    select 1 from {dependencies} as head force index (message)
    where head.queue = '{table}' and head.message = {of}.id and head.on_table = ''
)
