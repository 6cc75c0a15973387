-- {queue}_push_many: push each string of a JSON array as a payload (1,000 at the most), for producers. Returns ids
-- in that order. A payload of JSON is the string of its text, one of bytes is in hexadecimal digits.
-- Locks: none that another transaction waits for. All of them are pushed, or none.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_push_many
    @p_messages nvarchar(max),
    @p_headers nvarchar(max) = null,
    @p_delay float = null,
    @p_due datetimeoffset(6) = null,
    @p_priority int = null,
    @p_group nvarchar(max) = null,
    @p_producer nvarchar(max) = null,
    @p_now datetime2(6) = null,
    @p_expires float = null
as
begin
    -- Filtered indexes need these settings, which are the caller's; the other two are stored with the procedure.
    set ansi_padding, ansi_warnings, arithabort, concat_null_yields_null, xact_abort, nocount on;
    set numeric_roundabort off;
    set transaction isolation level read committed;
    declare @alone bit = case when @@trancount = 0 and @@options & 2 = 0 then 1 else 0 end;
    begin try
        begin transaction;
        if @p_messages is null or isjson(@p_messages) = 0
            throw 51001, N'The messages are no JSON array. Give an array of strings.', 1;
        if (select max(type) from openjson(N'[' + @p_messages + N']')) <> 4
            throw 51001, N'The messages are no JSON array. Give an array of strings.', 1;
        if (select count(*) from openjson(@p_messages)) > 1000
            throw 51001, N'There are more than 1000 messages. Give fewer in one call.', 1;
        if exists (select 1 from openjson(@p_messages) where type <> 1)
            throw 51001, N'A payload is no string. Give each as the string of its text.', 1;
        -- [json]
        if exists (
            select 1 from openjson(@p_messages) as batch
            where isjson(N'[' + batch.value + N']') = 0
                or (
                    select count(*)
                    from openjson(case when isjson(N'[' + batch.value + N']') = 1 then N'[' + batch.value + N']' end)
                ) <> 1
        )
            throw 51001, N'A payload is no JSON. Give each as the text of one value.', 1;
        -- [end]
        if @p_headers is not null and isjson(@p_headers) = 0
            throw 51001, N'The headers are no JSON object. Give an object.', 1;
        if (select max(type) from openjson(N'[' + @p_headers + N']')) <> 5
            throw 51001, N'The headers are no JSON object. Give an object.', 1;
        if @p_delay is not null and @p_due is not null
            throw 51001, N'Both delay and due are given. Give one of them.', 1;
        if @p_delay not between 0 and {longest}
            throw 51001, N'The delay is not from 0 to 100 years. Give another one.', 1;
        -- [expires]
        if @p_expires <= 0 or @p_expires > {longest}
            throw 51001, N'expires is not above 0, to 100 years. Give another number of seconds.', 1;
        -- [end]
        -- [not expires]
        if @p_expires is not null throw 51001, N'The messages of this queue do not expire. Leave the seconds out.', 1;
        -- [end]
        -- [not priority]
        if @p_priority is not null
            throw 51001, N'The queue does not go by priority. Leave the priority out.', 1;
        -- [end]
        -- [groups]
        if @p_group is null or len((@p_group + N'.') collate Latin1_General_100_CI_AS_SC) - 1 not between 1 and 255
            throw 51001, N'The queue has groups. Give the message its group, of 1 to 255 characters.', 1;
        if charindex(nchar(0), @p_group collate Latin1_General_100_BIN2) > 0
            throw 51001, N'The group has a NUL character. Give another one.', 1;
        -- [end]
        -- [fair]
        if len((@p_group + N'.') collate Latin1_General_100_CI_AS_SC) - 1 not between 1 and 255
            throw 51001, N'The group is not of 1 to 255 characters. Give another one.', 1;
        if charindex(nchar(0), @p_group collate Latin1_General_100_BIN2) > 0
            throw 51001, N'The group has a NUL character. Give another one.', 1;
        -- [end]
        -- [ungrouped]
        if @p_group is not null throw 51001, N'The queue has no groups. Leave the group out.', 1;
        -- [end]
        if datalength(@p_producer) > 1024
            throw 51001, N'The name of the producer is longer than 512 characters. Give a shorter one.', 1;
        set @p_producer = coalesce(@p_producer, original_login());
        set @p_priority = coalesce(@p_priority, 0);
        -- [due]
        if @p_due is null set @p_delay = coalesce(@p_delay, 0);
        -- [end]
        -- [strict]
        set @p_group = N'';
        -- [end]
        declare @due_utc datetime2(6) = cast(switchoffset(@p_due, '+00:00') as datetime2(6));
        declare @pushed table (id bigint not null primary key);
        {sql push_many payloads=@p_messages due=@due_utc into=@pushed};
        -- [grouped]
        insert into {turns} (group_key)
        select @group where exists (select 1 from @pushed);
        -- [end]
        -- The ids rise in the order of the messages.
        select id from @pushed order by id;
        commit transaction;
    end try
    begin catch
        -- XACT_ABORT dooms a caller's transaction, which the caller must end; an INSERT ... EXEC ends its own.
        if @alone = 1 and xact_state() <> 0 rollback transaction;
        throw;
    end catch;
end;
go
