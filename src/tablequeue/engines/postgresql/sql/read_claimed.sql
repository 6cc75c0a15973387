-- Read the messages of :ids that are in progress under :token: those of a claim that has been committed.
-- Index: the primary key. Locks: none.
select
    {claimed}{and_slot}
from {queue}
where id = any(cast(:ids as bigint[])) and token = cast(:token as uuid);
