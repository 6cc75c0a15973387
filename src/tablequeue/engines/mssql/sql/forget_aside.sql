-- Delete the messages of :ids, which are in the other database by now, from those that were set aside.
-- Index: the primary key. Locks: the rows. A crash leaves them, and the next move finds that they are there.
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
delete from message
from {moving} as message with (rowlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given);
