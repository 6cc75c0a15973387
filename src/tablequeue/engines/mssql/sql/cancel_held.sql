-- The messages of the JSON array :ids that are held under :token, and were told to stop, end: they move to the history
-- as cancelled, or are deleted if the queue keeps none. If :token is null, those whose lease has expired. :error is
-- kept.
-- Index: the primary key, sought as in complete_keep. Locks: the rows. In one transaction: a crash leaves all or
-- nothing.
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @error nvarchar(max) = cast(:error as nvarchar(max));
declare @now datetime2(6) = {now};
declare @message table (id bigint not null primary key, group_key varbinary(1020) null);
insert into @message (id, group_key)
select message.id, message.group_key
from {queue} as message with (rowlock, updlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.cancelled_at is not null
    and (message.token = @token or (@token is null and message.lease_until <= @now));
update message
set errors = {errors_and_one}
from {queue} as message with (rowlock, forceseek)
where @error is not null and message.id in (select there.id from @message as there);
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
where message.id in (select there.id from @message as there);
-- [grouped]
insert into {turns} (group_key)
select group_key from @message group by group_key order by min(id);
-- [end]
select id from @message;
