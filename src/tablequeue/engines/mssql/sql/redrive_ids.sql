-- Those of the JSON array :ids that are dead letters become ready, with no attempts made. Their errors stay.
-- Index: the primary key, sought as in complete_keep. Locks: the rows. A crash leaves all or nothing.
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
update message
set state = '{pushed_ready}', attempts = 0, due_at = {redriven_due}{no_expiry}
{note_inserted}output inserted.id
from {queue} as message with (rowlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.state = 'dead';
