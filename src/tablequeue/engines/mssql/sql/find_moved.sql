-- Those of :ids that have come from other databases: the id that each had, its token, and its id here.
-- Index: the primary key. Locks: shared ones while it reads.
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
select message.id, message.token, message.new_id
from {moved} as message with (readcommittedlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given);
