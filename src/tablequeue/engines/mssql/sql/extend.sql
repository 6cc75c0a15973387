-- Extend the leases on the messages of the JSON array :ids that are held under :token: they end :lease seconds from
-- now.
-- Index: the primary key, sought as in complete_keep. Locks: the rows. A crash leaves all of them extended, or none.
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @lease float = cast(:lease as float);
declare @now datetime2(6) = {now};
declare @until datetime2(6) = {now_and_lease};
update message
set lease_until = @until
output inserted.id, inserted.lease_until
from {queue} as message with (rowlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.token = @token;
