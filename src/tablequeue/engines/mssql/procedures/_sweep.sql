-- {queue}__sweep: make messages ready that are due or abandoned, up to @p_n of each kind. Returns how many, or -1 if
-- the last sweep of this session was less than @p_every milliseconds ago. For pop and take.
-- In a caller's transaction, no other consumer can claim these messages until the commit. So there pop and take sweep
-- only as many as they want, and else 1,000. The session remembers the time of its last sweep in its context.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}__sweep
    @p_every bigint,
    @p_n bigint,
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    declare @clock bigint = datediff_big(millisecond, '2000-01-01', sysutcdatetime());
    if @p_now is null and @clock < convert(bigint, session_context(N'{queue}')) + @p_every return -1;
    exec sys.sp_set_session_context @key = N'{queue}', @value = @clock;
    declare @moved int;
    exec @moved = {queue}__due @p_n, @p_now;
    declare @more int;
    exec @more = {queue}__expired @p_n, @p_now;
    set @moved = @moved + @more;
    -- [expires]
    exec @more = {queue}__expire @p_n, @p_now;
    set @moved = @moved + @more;
    -- [end]
    -- [grouped]
    exec @more = {queue}__promote @p_n, @p_now;
    set @moved = @moved + @more;
    -- [end]
    -- [retention]
    exec {queue}__outdated @p_now;
    -- [end]
    return @moved;
end;
go
