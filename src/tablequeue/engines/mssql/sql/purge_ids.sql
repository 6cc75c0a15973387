-- Delete those of the JSON array :ids that are {state}. Index: the primary key, sought as in complete_keep.
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
delete from message
{note_deleted}output deleted.id
from {queue} as message with (rowlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.state = '{state}';
