-- Those of the JSON array :ids that are held under :token are released, unworked: they are ready after :delay seconds,
-- and the attempt does not count.
-- Index: the primary key, sought as in complete_keep. Locks: the rows.
-- A crash leaves them in progress until the lease expires.
declare @ids nvarchar(max) = cast(:ids as nvarchar(max));
declare @token uniqueidentifier = cast(:token as uniqueidentifier);
declare @delay float = cast(:delay as float);
declare @now datetime2(6) = {now};
declare @due datetime2(6) = {now_and_delay};
update message
set state = case{or_blocked} when @delay > 0 then 'scheduled' else 'ready' end,
    due_at = case when @delay > 0 then @due else due_at end,
    attempts = attempts - 1,
    token = null,
    lease_until = null{out_of_run}
{note_inserted}output inserted.id, case when inserted.state = 'blocked' then 1 else 0 end
from {queue} as message with (rowlock, forceseek)
where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
    and message.token = @token and message.cancelled_at is null;
