-- Fail the messages of the JSON array :ids that were delivered at most once under :token: they stay lost, and the
-- error is kept.
-- Index: the primary key of the history, sought as in complete_keep. Locks: the rows. A crash leaves all of them
-- failed, or none.
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @error nvarchar(max) = cast(:error as nvarchar(max));
declare @now datetime2(6) = {now};
update message
set errors = {errors_and_one},
    token = null
output inserted.id, 'lost' as state
from {history} as message with (rowlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.token = @token;
