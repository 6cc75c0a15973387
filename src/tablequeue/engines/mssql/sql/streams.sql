-- The streams of a queue, by name, with the number of messages in progress of each.
-- Index: the primary key; {table}__in_progress, forced as in claim, of which it reads what has no lease.
-- RECOMPILE: no variable is here, and PARAMETERIZATION FORCED would put one in the place of the filter's literal.
-- Locks: none under READ_COMMITTED_SNAPSHOT; else it waits for streams that are claiming or completing.
select
    convert(nvarchar(510), streams.stream) as stream, streams.epoch, streams.batch, streams.completed,
    lower(replace(convert(char(36), streams.token), '-', '')) as token, streams.claimed_at,
    (
        select count_big(*) from {queue} as message with (index ({table}__in_progress))
        where message.state = 'in_progress' and message.lease_until is null and message.token = streams.token
    ) as messages
from {streams} as streams
order by streams.stream
option (recompile);
