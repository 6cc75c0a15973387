-- Wait until no other session sequences the topic, and keep others from it until the transaction ends.
declare @granted int;
declare @resource nvarchar(255) = concat(N'tablequeue sequence ', object_id(N'{log}'));
exec @granted = sp_getapplock @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction';
if @granted < 0
    throw 51000, N'tablequeue: other sessions are sequencing this topic', 1;
