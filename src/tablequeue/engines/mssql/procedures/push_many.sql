-- {queue}_push_many: push each string of a JSON array as a payload (1,000 at the most), for producers; their ids. A
-- payload of JSON is the string of its text, one of bytes is in hexadecimal digits.
-- Locks: none that another reader or writer waits for. All of them are pushed, or none.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_push_many
    @p_messages nvarchar(max),
    @p_headers nvarchar(max) = null,
    @p_delay float = null,
    @p_due datetime2(6) = null,
    @p_priority int = null,
    @p_group nvarchar(510) = null,
    @p_producer nvarchar(512) = null,
    @p_now datetime2(6) = null
with execute as owner
as
begin
    set xact_abort, nocount on;
    begin try
        begin transaction;
        if @p_messages is null or isjson(@p_messages) = 0 or left(ltrim(@p_messages), 1) <> N'['
            throw 51001, N'The messages are no JSON array. Give an array of strings.', 1;
        if (select count(*) from openjson(@p_messages)) > 1000
            throw 51001, N'There are more than 1000 messages. Give fewer in one call.', 1;
        if @p_delay is not null and @p_due is not null
            throw 51001, N'Both delay and due are given. Give one of them.', 1;
        if @p_delay not between 0 and {longest}
            throw 51001, N'The delay is not from 0 to 100 years. Give another one.', 1;
        -- [not priority]
        if @p_priority is not null
            throw 51001, N'The queue does not go by priority. Leave the priority out.', 1;
        -- [end]
        -- [groups]
        if @p_group is null or @p_group = N'' or len(@p_group) > 255
            throw 51001, N'The queue has groups. Give the message its group, of 1 to 255 characters.', 1;
        -- [end]
        -- [not groups]
        if @p_group is not null throw 51001, N'The queue has no groups. Leave the group out.', 1;
        -- [end]
        set @p_priority = coalesce(@p_priority, 0);
        set @p_producer = coalesce(@p_producer, original_login());
        -- [due]
        if @p_due is null set @p_delay = coalesce(@p_delay, 0);
        -- [end]
        -- [strict]
        set @p_group = N'';
        -- [end]
        {sql push_many payloads=@p_messages}
        -- [grouped]
        declare @groups nvarchar(max) = N'["' + string_escape(@p_group, 'json') + N'"]';
        {sql note groups=@groups}
        -- [end]
        commit transaction;
    end try
    begin catch
        -- Of the caller's transaction too: XACT_ABORT has doomed it.
        if xact_state() <> 0 rollback transaction;
        throw;
    end catch;
end;
go
