-- Take ten messages, and hold their locks for some seconds.
set nocount on;
declare @taken table (
    id bigint, payload nvarchar(max), headers nvarchar(max), attempts int, pushed_at datetime2(6),
    popped_at datetime2(6), lease_until datetime2(6), priority int, group_key nvarchar(510), dedup_key nvarchar(510),
    due_at datetime2(6), errors nvarchar(max)
);
begin transaction;
insert into @taken exec tq_emails_take @p_n = 10;
waitfor delay '00:00:10';
rollback transaction;
go
