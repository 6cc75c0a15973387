-- Push a batch of messages, each with a group and headers of its own, in the order of the JSON array :rows; as
-- topic_push_many.
-- Locks: none that another transaction waits for. A crash before the commit leaves nothing.
declare @rows nvarchar(max) = cast(:rows as nvarchar(max));
declare @producer nvarchar(512) = cast(:producer as nvarchar(512));
declare @now datetime2(6) = {now};
insert into {log} (payload, headers, producer, group_key, pushed_at)
output inserted.id
select {payload_of_row}, given.headers, @producer, convert(varbinary(1020), given.group_key), @now
from openjson(@rows) as entry
cross apply openjson(entry.value) with (
    payload nvarchar(max) '$.payload',
    headers nvarchar(max) '$.headers',
    group_key nvarchar(510) '$.group'
) as given
order by cast(entry.[key] as int);
