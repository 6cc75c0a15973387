-- {queue}_complete: complete the messages of the JSON array @p_ids that @p_token holds, for consumers; returns their
-- ids.
-- [results]
-- @p_result, the text of a JSON value, is kept as the result of each of them.
-- [end]
-- Error 51003 if it holds none of them: an error undoes the call, so it cannot be raised for some of them.
-- [grouped]
-- Then the next messages of their groups become ready; in a transaction of the caller's by the next pop after its
-- commit that finds too little.
-- [end]
-- Locks: the messages, until the transaction ends. A crash before the commit finishes none of them.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_complete
    @p_ids nvarchar(max),
    @p_token uniqueidentifier,
    @p_now datetime2(6) = null,
    @p_result nvarchar(max) = null
as
begin
    -- Filtered indexes need these settings, which are the caller's; the other two are stored with the procedure.
    set ansi_padding, ansi_warnings, arithabort, concat_null_yields_null, xact_abort, nocount on;
    set numeric_roundabort off;
    set transaction isolation level read committed;
    declare @alone bit = case when @@trancount = 0 and @@options & 2 = 0 then 1 else 0 end;
    begin try
        begin transaction;
        -- [results]
        if isjson(N'[' + @p_result + N']') = 0
            throw 51001, N'The result is no JSON. Give the text of one value.', 1;
        -- [end]
        -- [not results]
        if @p_result is not null throw 51001, N'This queue keeps no results. Leave the result out.', 1;
        -- [end]
        declare @done table (id bigint not null primary key, group_key varbinary(1020) null);
        -- [at_least_once]
        insert into @done (id, group_key)
        select message.id, message.group_key
        from {queue} as message with (rowlock, updlock, forceseek)
        where message.id in (select given.id from openjson(@p_ids) with (id bigint '$') as given)
            and message.token = @p_token;
        -- [end]
        -- [at_most_once]
        insert into @done (id)
        select message.id
        from {history} as message with (rowlock, updlock, forceseek)
        where message.id in (select given.id from openjson(@p_ids) with (id bigint '$') as given)
            and message.token = @p_token;
        -- [end]
        if @@rowcount = 0 and exists (select 1 from openjson(@p_ids))
            throw 51003, N'The lease is lost: it expired, or the message was finished. Make it longer.', 1;
        -- [at_most_once]
        {sql complete_at_most_once into=nothing};
        -- [end]
        -- [keep at_least_once]
        {sql complete_keep into=nothing};
        -- [end]
        -- [none]
        {sql complete_none into=nothing};
        -- [end]
        -- [results]
        insert into {results} (id, result) select id, @p_result from @done where @p_result is not null;
        -- [end]
        -- [keep grouped]
        insert into {turns} (group_key)
        select group_key from @done group by group_key order by min(id);
        -- [end]
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
    select id from @done;
end;
go
