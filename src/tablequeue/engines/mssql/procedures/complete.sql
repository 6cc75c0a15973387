-- {queue}_complete: finish those of the JSON array @p_ids that @p_token holds, for consumers; which they were.
-- Error 51003 if it holds none of them: an error undoes the call, so it cannot be raised for some of them.
-- Locks: the messages, until the transaction ends. A crash before the commit finishes none of them.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_complete
    @p_ids nvarchar(max),
    @p_token uniqueidentifier,
    @p_now datetime2(6) = null
with execute as owner
as
begin
    set xact_abort, nocount on;
    begin try
        begin transaction;
        -- [keep grouped]
        declare @done table (id bigint, group_key nvarchar(510));
        -- [end]
        -- [not keep grouped]
        declare @done table (id bigint);
        -- [end]
        insert into @done exec {queue}_finish @p_ids, @p_token, @p_now;
        if @@rowcount = 0 
            throw 51003, N'The lease is lost: it expired, or the message was finished. Make it longer.', 1;
        -- [keep grouped]
        declare @groups nvarchar(max) = (
            select N'[' + string_agg(N'"' + cast(string_escape(group_key, 'json') as nvarchar(max)) + N'"', N',') + N']'
            from @done
        );
        {sql note groups=@groups}
        -- [end]
        -- [grouped]
        declare @arranged table (id bigint);
        insert into @arranged exec {queue}_arrange @p_now;
        -- [end]
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
