-- Stage the messages in the JSON array :rows, of the part :part of the write :write.
-- Locks: none that another transaction waits for. A crash leaves what was staged, which nobody sees, for a day.
declare @rows nvarchar(max) = cast(:rows as nvarchar(max));
declare @write varchar(255) = cast(:write as varchar(255));
declare @attempt varchar(255) = cast(:attempt as varchar(255));
declare @part int = :part;
declare @now datetime2(6) = {now};
insert into {staged} (
    write_id, attempt, part, place, priority, due_at, staged_at, group_key, dedup_key, headers, payload
)
select
    @write, @attempt, @part, given.place, given.priority, given.due, @now,
    convert(varbinary(1020), given.group_key), convert(varbinary(1020), given.dedup_key), given.headers,
    {payload_of_row}
from openjson(@rows) with (
    place bigint '$.place',
    payload nvarchar(max) '$.payload',
    headers nvarchar(max) '$.headers',
    priority int '$.priority',
    group_key nvarchar(510) '$.group',
    dedup_key nvarchar(510) '$.key',
    due datetime2(6) '$.due'
) as given;
