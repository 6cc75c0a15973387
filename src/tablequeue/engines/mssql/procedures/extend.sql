-- {queue}_extend: the lease on message @p_id, held under @p_token, ends @p_seconds (else {lease}) from now; for
-- consumers. Returns that end. Error 51003 if the lease is lost. Locks: the message, until the transaction ends.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_extend
    @p_id bigint,
    @p_token uniqueidentifier,
    @p_seconds float = null,
    @p_now datetime2(6) = null
with execute as owner
as
begin
    set xact_abort, nocount on;
    begin try
        begin transaction;
        declare @p_lease float = coalesce(@p_seconds, {lease});
        if @p_lease not between 0 and {longest}
            throw 51001, N'The lease is not from 0 to 100 years. Give another one.', 1;
        {sql extend}
        if @@rowcount = 0 
            throw 51003, N'The lease is lost: it expired, or the message was finished. Make it longer.', 1;
        commit transaction;
    end try
    begin catch
        -- Of the caller's transaction too: XACT_ABORT has doomed it.
        if xact_state() <> 0 rollback transaction;
        throw;
    end catch;
end;
go
