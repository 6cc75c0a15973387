-- {queue}_cancel: cancel the messages of the JSON array @p_ids, for producers. Returns those that there are, and
-- whether each was told. A message that waits, or is a dead letter, leaves the queue. One in progress is told to stop:
-- if it fails, is released, or loses its lease, it ends. If its consumer completes it, it is completed.
-- Locks: the messages, until the transaction ends. A crash before the commit cancels none of them.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_cancel
    @p_ids nvarchar(max),
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
        {sql cancel into=nothing};
        commit transaction;
    end try
    begin catch
        -- XACT_ABORT dooms a caller's transaction, which the caller must end; an INSERT ... EXEC ends its own.
        if @alone = 1 and xact_state() <> 0 rollback transaction;
        throw;
    end catch;
    -- [grouped]
    if @alone = 1 exec {queue}__move_on @p_now;
    -- [end]
    select id, told from @message;
end;
go
