-- The streams of a queue, by name, with the number of messages in progress of each. Locks: none.
-- Index: the primary key; {table}__state.
select
    convert(stream using utf8mb4), epoch, batch, completed, token, claimed_at,
    (
        select count(*) from {queue} as message
        where message.state = 'in_progress' and message.sweep_at is null and message.token = streams.token
    )
from {streams} as streams
order by streams.stream;
