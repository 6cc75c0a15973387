-- Pop and complete until nothing is ready. The number of rows of `consumed` for a message is how often it was completed.
set nocount on;
declare @popped table (
    id bigint, payload nvarchar(max), headers nvarchar(max), attempts int, pushed_at datetime2(6),
    popped_at datetime2(6), lease_until datetime2(6), priority int, group_key nvarchar(510), dedup_key nvarchar(510),
    due_at datetime2(6), errors nvarchar(max), token uniqueidentifier
);
declare @completed table (id bigint);
declare @ids nvarchar(max);
declare @token uniqueidentifier;
while 1 = 1
begin
    delete from @popped;
    delete from @completed;
    insert into @popped exec tq_emails_pop @p_n = 10;
    if not exists (select 1 from @popped) break;
    set @token = (select top (1) token from @popped);
    set @ids = N'[' + stuff((select N',' + cast(id as nvarchar(20)) from @popped for xml path('')), 1, 1, N'') + N']';
    insert into @completed exec tq_emails_complete @ids, @token;
    insert into consumed (id, consumer) select id, @@spid from @completed;
end;
go
