-- The dead letters among :ids move to {target}, where other queues send theirs too: ready messages, with their errors.
-- Their origin is the header tablequeue-origin: the name :origin of the queue, its table, the id, the attempts and the
-- key. The key is free again: a message of {target} may have the same.
-- Index: the primary key. Locks: the rows. In one transaction with the failure: a crash leaves the message in progress.
with dead as (
    delete from {queue} where id = any(cast(:ids as bigint[])) and state || '' = 'dead' returning *
)
insert into {target} (
    {queue_row without id token lease_until dedup_key}
)
select
    {queue_row without id token lease_until dedup_key with
        state = '{moved_dead}'
        attempts = 0
        due_at = {now}
        headers = {origin_header}}
from dead
order by id;
