-- The dead letters among :ids move to {target}, where other queues send theirs too: ready messages, with their errors.
-- Their origin is the header tablequeue-origin: the name :origin of the queue, its table, the id, the attempts and the
-- key. The key is free again: a message of {target} may have the same.
-- Index: the primary key. Locks: the database. In one transaction with the failure: a crash leaves the message in
-- progress.
insert into {target} (
    {queue_row without id token lease_until dedup_key}
)
select
    {queue_row without id token lease_until dedup_key with
        state = '{moved_dead}'
        attempts = 0
        due_at = {now}
        headers = {origin_header}}
from {queue}
where id in (select value from json_each(:ids)) and state = 'dead'
order by id;
delete from {queue}
where id in (select value from json_each(:ids)) and state = 'dead';
