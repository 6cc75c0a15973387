-- Push a batch of messages, in the order of the JSON array :payloads: all of them, or none. The ids rise in that order,
-- and OUTPUT returns them in any order; see push_many.
-- Locks: none that another transaction waits for. A crash before the commit leaves nothing.
declare @payloads nvarchar(max) = cast(:payloads as nvarchar(max));
declare @headers nvarchar(max) = cast(:headers as nvarchar(max));
declare @producer nvarchar(512) = cast(:producer as nvarchar(512));
declare @group varbinary(1020) = convert(varbinary(1020), cast(:group as nvarchar(510)));
declare @now datetime2(6) = {now};
insert into {log} (payload, headers, producer, group_key, pushed_at)
output inserted.id
select {payload_of_value}, @headers, @producer, @group, @now
from openjson(@payloads) as batch
order by cast(batch.[key] as int);
