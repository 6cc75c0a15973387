-- {queue}_read_history: the last @p_n finished messages with ids from @p_low to @p_high, highest id first; for
-- observers. Not {queue}_history, which is the table.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_read_history
    @p_n bigint = 10,
    @p_low bigint = 0,
    @p_high bigint = 9223372036854775807
with execute as owner
as
begin
    set xact_abort, nocount on;
    begin try
        begin transaction;
        {sql history}
        commit transaction;
    end try
    begin catch
        -- Of the caller's transaction too: XACT_ABORT has doomed it.
        if xact_state() <> 0 rollback transaction;
        throw;
    end catch;
end;
go
