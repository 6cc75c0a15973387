-- Read the messages of the JSON array :ids that are in progress under :token.
-- Index: the primary key, sought as in complete_keep. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option:
-- shared locks while it reads, and it waits for transactions that change a row.
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
select
    {live_columns}
from {queue} as message with (forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.token = @token
order by message.id;
