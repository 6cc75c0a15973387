-- {queue}_release: give back those of the JSON array @p_ids that @p_token holds, unworked, for consumers; which they
-- were. They are ready after @p_delay seconds, and the attempt is not counted. Error 51003 if it holds none of them.
-- Locks: the messages, until the transaction ends. A crash before the commit releases none of them.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_release
    @p_ids nvarchar(max),
    @p_token uniqueidentifier,
    @p_delay float = 0,
    @p_now datetime2(6) = null
with execute as owner
as
begin
    set xact_abort, nocount on;
    begin try
        begin transaction;
        if @p_delay is null or @p_delay not between 0 and {longest}
            throw 51001, N'The delay is not from 0 to 100 years. Give another one.', 1;
        declare @done table (id bigint);
        insert into @done exec {queue}_give_back @p_ids, @p_token, @p_delay, @p_now;
        if @@rowcount = 0 
            throw 51003, N'The lease is lost: it expired, or the message was finished. Make it longer.', 1;
        select id from @done;
        commit transaction;
    end try
    begin catch
        -- Of the caller's transaction too: XACT_ABORT has doomed it.
        if xact_state() <> 0 rollback transaction;
        throw;
    end catch;
end;
go
