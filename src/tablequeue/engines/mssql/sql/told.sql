-- Those of the messages of the JSON array :ids that are in progress and were told to stop.
-- Index: the primary key. Locks: none under READ_COMMITTED_SNAPSHOT. Without that option it waits for transactions that
-- change one of these rows.
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
select message.id
from {queue} as message with (forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.cancelled_at is not null;
