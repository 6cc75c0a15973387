-- Complete the messages of the JSON array :ids that were delivered at most once under :token.
-- Index: the primary key of the history. FORCESEEK: OPENJSON is always taken for 50 rows, and on a short table the plan
-- could be to scan, and so to lock, all of it. Locks: the rows. A crash leaves all of them completed, or none.
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @now datetime2(6) = {now};
update message
set finished_at = @now, token = null
output inserted.id
from {history} as message with (rowlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.token = @token;
