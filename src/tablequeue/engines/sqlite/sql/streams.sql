-- The streams of a queue, by name, with the number of messages in progress of each. Locks: none.
-- Index: the primary key; {table}__in_progress, where a stream has no lease.
select
    stream, epoch, batch, completed, token, claimed_at,
    (
        select count(*) from {queue} as message
        where message.state = 'in_progress' and message.lease_until is null and message.token = streams.token
    )
from {streams} as streams
order by stream;
