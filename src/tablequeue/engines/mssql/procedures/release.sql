-- {queue}_release: release the messages of the JSON array @p_ids that are held under @p_token, for consumers. Returns
-- their ids. They are ready after @p_delay seconds, and the attempt does not count; those that were told to stop end.
-- Error 51003 if none is held.
-- Locks: the messages, until the transaction ends. A crash before the commit releases none of them.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_release
    @p_ids nvarchar(max),
    @p_token uniqueidentifier,
    @p_delay float = 0,
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
        if @p_delay is null or @p_delay not between 0 and {longest}
            throw 51001, N'The delay is not from 0 to 100 years. Give another one.', 1;
        declare @done table (id bigint not null primary key);
        insert into @done (id)
        select message.id
        from {queue} as message with (rowlock, updlock, forceseek)
        where message.id in (select given.id from openjson(@p_ids) with (id bigint '$') as given)
            and message.token = @p_token;
        if @@rowcount = 0 and exists (select 1 from openjson(@p_ids))
            throw 51003, N'The lease is lost: it expired, or the message was finished. Make it longer.', 1;
        {sql release into=nothing};
        exec {queue}__cancel_held @p_ids, @p_token, null, @p_now;
        select id from @done;
        commit transaction;
    end try
    begin catch
        -- XACT_ABORT dooms a caller's transaction, which the caller must end; an INSERT ... EXEC ends its own.
        if @alone = 1 and xact_state() <> 0 rollback transaction;
        throw;
    end catch;
end;
go
