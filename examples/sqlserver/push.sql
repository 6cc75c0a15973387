-- 20,000 messages, in pushes of 1,000.
set nocount on;
create table consumed (id bigint not null, consumer int not null);
declare @payloads nvarchar(max) = N'[' + stuff((
    select top (1000) N',' + cast(row_number() over (order by (select null)) as nvarchar(9))
    from sys.all_columns
    for xml path('')
), 1, 1, N'') + N']';
declare @done int = 0;
declare @pushed table (id bigint);
while @done < 20
begin
    insert into @pushed exec tq_emails_push_many @payloads;
    set @done = @done + 1;
end;
go
