-- {queue}_sweep: what is due or abandoned becomes ready. Returns how many, or -1 if the last sweep of this session was
-- less than @p_every milliseconds ago. For pop and take.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_sweep
    @p_every bigint,
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    declare @clock bigint = datediff_big(millisecond, '2000-01-01', sysutcdatetime());
    if @p_now is null and @clock < convert(bigint, session_context(N'{table}')) + @p_every return -1;
    exec sys.sp_set_session_context @key = N'{table}', @value = @clock;
    declare @moved table (id bigint);
    insert into @moved exec {queue}_due @p_now;
    insert into @moved exec {queue}_expired @p_now;
    -- [grouped]
    insert into @moved exec {queue}_arrange @p_now;
    -- [end]
    -- [retention]
    declare @gone table (id bigint);
    insert into @gone exec {queue}_outdated @p_now;
    -- [end]
    return (select count(*) from @moved);
end;
go
