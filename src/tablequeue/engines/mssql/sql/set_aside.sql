-- Set the messages of :ids, which waiting has locked, aside under the token :token, with all that they have.
-- Index: the primary key, sought as in complete_keep. Locks: the rows. In one transaction: a crash leaves all in the
-- queue, or all aside.
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
declare @token nvarchar(max) = cast(:token as nvarchar(max));
insert into {moving} (
    {queue_row without lease_until}, expires_at
)
select
    {queue_row without lease_until with token = @token}, expires_at
from {queue} as message with (forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given);
delete from message
{note_deleted}output deleted.id
from {queue} as message with (rowlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given);
