-- Put the messages of another database in the JSON array :rows where move finds them, in the transaction in which it
-- moves them into this queue.
-- Locks: the rows. A crash before the commit leaves nothing.
declare @rows nvarchar(max) = cast(:rows as nvarchar(max));
insert into {moving} (
    {queue_row without lease_until}, expires_at
)
select
    {queue_row without lease_until with
        group_key = convert(varbinary(1020), given.group_key)
        dedup_key = convert(varbinary(1020), given.dedup_key)
        payload = {payload_of_row}}, expires_at
from openjson(@rows) with (
    id bigint '$.id',
    state varchar(11) '$.state',
    attempts int '$.attempts',
    priority int '$.priority',
    token char(32) '$.token',
    pushed_at datetime2(6) '$.pushed_at',
    due_at datetime2(6) '$.due',
    first_popped_at datetime2(6) '$.first_popped_at',
    popped_at datetime2(6) '$.popped_at',
    expires_at datetime2(6) '$.expires_at',
    group_key nvarchar(510) '$.group',
    dedup_key nvarchar(510) '$.key',
    producer nvarchar(512) '$.producer',
    consumer nvarchar(512) '$.consumer',
    headers nvarchar(max) '$.headers',
    errors nvarchar(max) '$.errors',
    payload nvarchar(max) '$.payload'
) as given;
