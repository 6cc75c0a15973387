-- Let the next claim begin at :start. The row has no messages.
-- Locks: that of the subscription's claims, until the transaction ends: the rows are in the order of the claims.
declare @start bigint = :start;
declare @now datetime2(6) = {now};
declare @granted int;
declare @resource nvarchar(255) = concat(N'tablequeue claim ', object_id(N'{ranges}'));
begin transaction;
exec @granted = sp_getapplock @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction';
if @granted < 0
    throw 51000, N'tablequeue: other consumers are claiming from this subscription', 1;
insert into {ranges} (first_offset, last_offset, messages, ids_sum, popped_at, finished_at)
values (@start, @start - 1, 0, 0, @now, @now);
commit transaction;
