-- Cancel the messages of the JSON array :ids. Those in progress are told to stop. The others leave the queue: they move
-- to the history as cancelled, or are deleted if the queue keeps none. Returns each message, and whether it was told.
-- Index: the primary key, sought as in complete_keep. Locks: the rows; it waits for claims and finishes under way.
-- In one transaction: a crash leaves all or nothing.
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
declare @now datetime2(6) = {now};
declare @message table (id bigint not null primary key, told bit not null, group_key varbinary(1020) null);
insert into @message (id, told, group_key)
select message.id, case when message.state = 'in_progress' then 1 else 0 end, message.group_key
from {queue} as message with (rowlock, updlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given);
update message
set cancelled_at = coalesce(message.cancelled_at, @now)
from {queue} as message with (rowlock, forceseek)
where message.id in (select there.id from @message as there where there.told = 1);
-- [keep]
delete from message
output
    {history_row of deleted without token with
        finished_at = @now
        group_key = convert(nvarchar(510), deleted.group_key)
        dedup_key = convert(nvarchar(510), deleted.dedup_key)},
    'cancelled'
into {history} (
    {history_row without token},
    outcome
)
-- [end]
-- [none]
delete from message
-- [end]
from {queue} as message with (rowlock, forceseek)
where message.id in (select there.id from @message as there where there.told = 0);
-- [grouped]
insert into {turns} (group_key)
select group_key from @message where told = 0 group by group_key order by min(id);
-- [end]
select id, told from @message;
