-- {queue}_extend: the lease on message @p_id, held under @p_token, ends @p_seconds (else {lease}) from now; for
-- consumers. Returns that end. Error 51003 if the lease is lost. Locks: the message, until the transaction ends.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_extend
    @p_id bigint,
    @p_token uniqueidentifier,
    @p_seconds float = null,
    @p_now datetime2(6) = null
as
begin
    -- Filtered indexes need these settings, which are the caller's; the other two are stored with the procedure.
    set ansi_padding, ansi_warnings, arithabort, concat_null_yields_null, xact_abort, nocount on;
    set numeric_roundabort off;
    set transaction isolation level read committed;
    declare @alone bit = case when @@trancount = 0 and @@options & 2 = 0 then 1 else 0 end;
    begin try
        begin transaction;
        declare @p_lease float = coalesce(@p_seconds, {lease});
        if @p_lease not between 0 and {longest}
            throw 51001, N'The lease is not from 0 to 100 years. Give another one.', 1;
        {sql extend ids=concat(N'[',@p_id,N']') into=nothing};
        if @@rowcount = 0
            throw 51003, N'The lease is lost: it expired, or the message was finished. Make it longer.', 1;
        select @until as lease_until;
        commit transaction;
    end try
    begin catch
        -- XACT_ABORT dooms a caller's transaction, which the caller must end; an INSERT ... EXEC ends its own.
        if @alone = 1 and xact_state() <> 0 rollback transaction;
        throw;
    end catch;
end;
go
