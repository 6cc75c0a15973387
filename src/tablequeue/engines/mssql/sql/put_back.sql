-- Put back, as a dead letter, a message that was taken in this transaction and whose payload cannot be read.
-- Index: the primary key. Locks: the row. A crash before the commit leaves it where it was before it was taken.
declare @id bigint = :id;
declare @attempts int = :attempts;
declare @priority int = :priority;
declare @pushed_at datetime2(6) = cast(:pushed_at as datetime2(6));
declare @due datetime2(6) = cast(:due as datetime2(6));
declare @popped_at datetime2(6) = cast(:popped_at as datetime2(6));
declare @group varbinary(1020) = convert(varbinary(1020), cast(:group as nvarchar(510)));
declare @key varbinary(1020) = convert(varbinary(1020), cast(:key as nvarchar(510)));
set identity_insert {queue} on;
insert into {queue} (
    {queue_row without token lease_until producer}
)
values (
    @id, 'dead', @attempts, @priority, @pushed_at, @due, @popped_at, @popped_at, @group, @key,
    cast(:consumer as nvarchar(512)), cast(:headers as nvarchar(max)), cast(:errors as nvarchar(max)),
    cast(:payload as {payload_type})
);
set identity_insert {queue} off;
