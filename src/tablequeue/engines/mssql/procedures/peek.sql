-- {queue}_peek: the first @p_n messages of a state with ids above @p_after, claiming none; for observers.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_peek
    @p_n bigint = 10,
    @p_state varchar(20) = 'ready',
    @p_after bigint = 0
as
begin
    -- Filtered indexes need these settings, which are the caller's; the other two are stored with the procedure.
    set ansi_padding, ansi_warnings, arithabort, concat_null_yields_null, xact_abort, nocount on;
    set numeric_roundabort off;
    set transaction isolation level read committed;
    if @p_state is null or @p_state not in ({states})
        throw 51001, N'The state is not known. Give ready, scheduled, in_progress, dead or blocked.', 1;
    -- The state is spelled into each statement: its index serves no parameter.
    if @p_state = 'ready' exec {queue}__peek_ready @p_n, @p_after;
    if @p_state = 'scheduled' exec {queue}__peek_scheduled @p_n, @p_after;
    if @p_state = 'in_progress' exec {queue}__peek_in_progress @p_n, @p_after;
    if @p_state = 'dead' exec {queue}__peek_dead @p_n, @p_after;
    if @p_state = 'blocked' exec {queue}__peek_blocked @p_n, @p_after;
end;
go
