-- Push a batch of messages, in the order of the JSON array :payloads: all of them, or none.
-- INSERT ... SELECT ... ORDER BY assigns the identities in that order. OUTPUT returns them in any order, so the caller
-- sorts the ids to match them with the messages.
-- Locks: none that another transaction waits for. A crash before the commit leaves nothing.
declare @payloads nvarchar(max) = cast(:payloads as nvarchar(max));
declare @headers nvarchar(max) = cast(:headers as nvarchar(max));
declare @producer nvarchar(512) = cast(:producer as nvarchar(512));
declare @priority int = :priority;
declare @group varbinary(1020) = convert(varbinary(1020), cast(:group as nvarchar(510)));
declare @delay float = cast(:delay as float);
declare @now datetime2(6) = {now};
declare @due datetime2(6) = coalesce(cast(:due as datetime2(6)), {now_and_delay});
-- [expires]
declare @expires float = coalesce(cast(:expires as float), {expires});
-- [end]
insert into {queue} (payload, headers, producer, priority, group_key, pushed_at, due_at, state{expires_at})
output inserted.id
select
    {payload_of_value}, @headers, @producer, @priority, @group, @now, @due,
    case when @due > @now then '{pushed_scheduled}' else '{pushed_ready}' end{until}
from openjson(@payloads) as batch
order by cast(batch.[key] as int);
