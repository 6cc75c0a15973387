-- {queue}_stats: exact counts by state, the age in seconds of the first ready message, and then how many are finished,
-- if the queue keeps a history; for observers.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_stats
    @p_now datetime2(6) = null
with execute as owner
as
begin
    set xact_abort, nocount on;
    begin try
        begin transaction;
        {sql stats}
        -- [keep]
        {sql stats_history}
        -- [end]
        commit transaction;
    end try
    begin catch
        -- Of the caller's transaction too: XACT_ABORT has doomed it.
        if xact_state() <> 0 rollback transaction;
        throw;
    end catch;
end;
go
