-- {queue}_lost: the first @p_n messages that were claimed at most once, @p_age seconds ago (else {lease}) or longer,
-- and not acknowledged; for observers.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_lost
    @p_n bigint = 10,
    @p_age float = {lease},
    @p_now datetime2(6) = null
with execute as owner
as
begin
    set xact_abort, nocount on;
    begin try
        begin transaction;
        {sql lost}
        commit transaction;
    end try
    begin catch
        -- Of the caller's transaction too: XACT_ABORT has doomed it.
        if xact_state() <> 0 rollback transaction;
        throw;
    end catch;
end;
go
