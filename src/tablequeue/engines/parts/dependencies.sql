-- Parts about messages that wait until others have left their queues.

-- name: still_waits
-- Whether the dead letter {of} has a head, and so still waits: it has expired. Redriven, it is due at :due
-- until a sweep finds that it waits for nothing.
exists (
    select 1 from {dependencies} as head
    where head.queue = '{table}' and head.message = {of}.id and head.on_table = ''
)
