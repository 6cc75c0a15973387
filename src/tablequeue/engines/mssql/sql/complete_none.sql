-- Complete the messages of the JSON array :ids that are held under :token: they are deleted, because the queue keeps no
-- history.
-- Index: the primary key. FORCESEEK: OPENJSON is always taken for 50 rows, and on a short table the plan could be to
-- scan, and so to lock, all of it. Locks: the rows. A crash leaves all of them completed, or none.
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
delete from message
{note_deleted}output deleted.id
from {queue} as message with (rowlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.token = @token;
