-- Push one message to the log.
-- Locks: none that another transaction waits for. A crash before the commit leaves nothing.
declare @payload {payload_type} = cast(:payload as {payload_type});
declare @headers nvarchar(max) = cast(:headers as nvarchar(max));
declare @producer nvarchar(512) = cast(:producer as nvarchar(512));
declare @group varbinary(1020) = convert(varbinary(1020), cast(:group as nvarchar(510)));
declare @now datetime2(6) = {now};
insert into {log} (payload, headers, producer, group_key, pushed_at)
output inserted.id
values (@payload, @headers, @producer, @group, @now);
