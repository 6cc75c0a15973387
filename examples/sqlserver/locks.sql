-- While take.sql waits: what it has locked, and whether others go on.
set nocount on;
declare @looks int = 0;
declare @locks table (resource_type nvarchar(60), request_mode nvarchar(60), number int);
while @looks < 80 and not exists (select 1 from @locks where resource_type = N'KEY' and request_mode = N'X')
begin
    delete from @locks;
    insert into @locks
    select held.resource_type, held.request_mode, count(*)
    from sys.dm_tran_locks as held
    where held.resource_database_id = db_id() and held.request_session_id <> @@spid
        and (
            held.resource_associated_entity_id = object_id(N'tq_emails')
            or held.resource_associated_entity_id in (
                select hobt_id from sys.partitions where object_id = object_id(N'tq_emails')
            )
        )
    group by held.resource_type, held.request_mode;
    set @looks = @looks + 1;
    if not exists (select 1 from @locks where resource_type = N'KEY' and request_mode = N'X')
        waitfor delay '00:00:00.1';
end;
select resource_type, request_mode, number from @locks order by resource_type, request_mode;
print case when exists (select 1 from @locks where resource_type = N'KEY' and request_mode = N'X')
    then N'passed: a take locks keys' else N'FAILED: a take locks keys' end;
print case when not exists (
    select 1 from @locks where resource_type = N'OBJECT' and request_mode not in (N'IX', N'IS', N'Sch-S')
) then N'passed: a take locks no table' else N'FAILED: a take locks no table' end;
print case when not exists (
    select 1 from @locks where resource_type = N'PAGE' and request_mode not in (N'IX', N'IU', N'IS')
) then N'passed: a take locks no page' else N'FAILED: a take locks no page' end;
declare @popped table (
    id bigint, payload nvarchar(max), headers nvarchar(max), attempts int, pushed_at datetime2(6),
    popped_at datetime2(6), lease_until datetime2(6), priority int, group_key nvarchar(510), dedup_key nvarchar(510),
    due_at datetime2(6), errors nvarchar(max), token uniqueidentifier
);
set lock_timeout 2000;
begin try
    insert into @popped exec tq_emails_pop @p_n = 5;
end try
begin catch
    print error_message();
end catch;
print case when (select count(*) from @popped) = 5
    then N'passed: a pop passes over taken messages' else N'FAILED: a pop passes over taken messages' end;
go
