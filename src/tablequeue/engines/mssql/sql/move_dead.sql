-- The dead letters among :ids move to {target}, where other queues send theirs too: ready messages, with their errors.
-- Their origin is the header tablequeue-origin: the name :origin of the queue, its table, the id, the attempts and the
-- key. The key is free again: a message of {target} may have the same. If {target} is grouped, they are blocked there,
-- with a note for its promote.
-- Index: the primary key, sought as in complete_keep. Locks: the rows, of at most 1,000 messages. In one transaction
-- with the failure: a crash leaves the message in progress.
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
declare @origin nvarchar(512) = cast(:origin as nvarchar(512));
declare @now datetime2(6) = {now};
insert into {target} (
    {queue_row without id token lease_until dedup_key}
)
{note_in_target}select
    {queue_row without id token lease_until dedup_key with
        state = '{moved_dead}'
        attempts = 0
        due_at = @now
        headers = {origin_header}}
from {queue} as message with (rowlock, updlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.state = 'dead'
order by id;
delete from message
from {queue} as message with (rowlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.state = 'dead';
