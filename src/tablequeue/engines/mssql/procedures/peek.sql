-- {queue}_peek: the first @p_n messages of a state with ids above @p_after, claiming none; for observers.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_peek
    @p_n bigint = 10,
    @p_state varchar(11) = 'ready',
    @p_after bigint = 0
with execute as owner
as
begin
    set xact_abort, nocount on;
    begin try
        begin transaction;
        if @p_state is null or @p_state not in ('ready', 'scheduled', 'in_progress', 'dead', 'blocked')
            throw 51001, N'The state is not known. Give ready, scheduled, in_progress, dead or blocked.', 1;
        -- The state is spelled into each statement: its index serves no parameter.
        if @p_state = 'ready' exec {queue}_peek_ready @p_n, @p_after;
        if @p_state = 'scheduled' exec {queue}_peek_scheduled @p_n, @p_after;
        if @p_state = 'in_progress' exec {queue}_peek_in_progress @p_n, @p_after;
        if @p_state = 'dead' exec {queue}_peek_dead @p_n, @p_after;
        if @p_state = 'blocked' exec {queue}_peek_blocked @p_n, @p_after;
        commit transaction;
    end try
    begin catch
        -- Of the caller's transaction too: XACT_ABORT has doomed it.
        if xact_state() <> 0 rollback transaction;
        throw;
    end catch;
end;
go
