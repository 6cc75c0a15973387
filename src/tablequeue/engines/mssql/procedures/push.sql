-- {queue}_push: push one message, for producers. Returns its id. If a live message has its key: error 51002, or with
-- @p_on_conflict 'skip' null, or with 'return' the id of that message. If two transactions push a key at the same
-- moment, one of them may get error 2601 instead, and must be tried again.
-- Locks: a key waits for another transaction that is pushing the same one. A crash before the commit leaves nothing.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_push
    @p_payload {payload_type},
    @p_headers nvarchar(max) = null,
    @p_delay float = null,
    @p_due datetimeoffset(6) = null,
    @p_priority int = null,
    @p_group nvarchar(max) = null,
    @p_key nvarchar(max) = null,
    @p_on_conflict varchar(20) = 'raise',
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
        if @p_payload is null throw 51001, N'There is no payload. Give the message one.', 1;
        -- [json]
        if isjson(N'[' + @p_payload + N']') = 0
            or (
                select count(*)
                from openjson(case when isjson(N'[' + @p_payload + N']') = 1 then N'[' + @p_payload + N']' end)
            ) <> 1
            throw 51001, N'The payload is no JSON. Give the text of one value.', 1;
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
        -- [key_for]
        if @p_key is not null
            throw 51001, N'Keys of this queue stay taken for a time, which no procedure notes. Leave the key out.', 1;
        -- [end]
        if len((@p_key + N'.') collate Latin1_General_100_CI_AS_SC) - 1 not between 1 and 255
            throw 51001, N'The key is not of 1 to 255 characters. Give another one.', 1;
        if charindex(nchar(0), @p_key collate Latin1_General_100_BIN2) > 0
            throw 51001, N'The key has a NUL character. Give another one.', 1;
        if @p_on_conflict is null or @p_on_conflict not in ('raise', 'skip', 'return')
            throw 51001, N'on_conflict is not known. Give raise, skip or return.', 1;
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
        declare @id bigint;
        declare @words nvarchar(2048);
        declare @pushed table (id bigint not null primary key);
        while 1 = 1
        begin
            {sql push due=@due_utc into=@pushed};
            -- Not SCOPE_IDENTITY(): an OUTPUT ... INTO a table with an identity of its own changes that.
            set @id = (select id from @pushed);
            -- [grouped]
            insert into {turns} (group_key)
            select @group where @id is not null;
            -- [end]
            if @id is not null or @p_on_conflict = 'skip' break;
            if @p_on_conflict = 'raise'
            begin
                set @words = N'A live message has the key ' + replace(@p_key, N'%', N'%%') + N' already. '
                    + N'Push with another key, or have conflicts skipped.';
                throw 51002, @words, 1;
            end;
            select @id = there.id
            from {queue} as there with (readcommittedlock)
            where there.dedup_key = @key and there.dedup_key is not null;
            -- Otherwise that message was finished between the two statements: push again.
            if @id is not null break;
        end;
        select @id as id;
        commit transaction;
    end try
    begin catch
        -- XACT_ABORT dooms a caller's transaction, which the caller must end; an INSERT ... EXEC ends its own.
        if @alone = 1 and xact_state() <> 0 rollback transaction;
        throw;
    end catch;
end;
go
