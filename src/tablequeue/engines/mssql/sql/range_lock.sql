-- Try to get the lock of a subscription's claims until the transaction ends; return whether it was free.
declare @granted int;
declare @resource nvarchar(255) = concat(N'tablequeue claim ', object_id(N'{ranges}'));
exec @granted = sp_getapplock
    @Resource = @resource, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 0;
select case when @granted >= 0 then 1 else 0 end as granted;
