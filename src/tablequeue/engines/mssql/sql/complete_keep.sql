-- Complete the messages of the JSON array :ids that are held under :token: one statement moves them to the history.
-- Index: the primary key. FORCESEEK: OPENJSON is always taken for 50 rows, and on a short table the plan could be to
-- scan, and so to lock, all of it. Locks: the rows. A crash leaves all of them completed, or none.
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @now datetime2(6) = {now};
delete from message
output
    {history_row of deleted without token with
        finished_at = @now
        group_key = convert(nvarchar(510), deleted.group_key)
        dedup_key = convert(nvarchar(510), deleted.dedup_key)}
into {history} (
    {history_row without token}
)
output deleted.id, convert(nvarchar(510), deleted.group_key) as group_key
from {queue} as message with (rowlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.token = @token;
