-- {queue}_push_each: push a JSON array of messages with options of their own (1,000 at the most), for producers; their
-- ids, in that order. A message is an object: payload, and as it needs them headers, delay, due, priority, group, key.
-- A payload of JSON and headers are strings of their text, a payload of bytes is in hexadecimal digits.
-- If a message has the key of one already: error 51002 and none is pushed, or with @p_on_conflict 'skip' null for that
-- one, or with 'return' the id of the message that has it. Two that push a key at the same moment: one of them may get
-- error 2601 instead, and is to be tried again.
-- Locks: a message waits for another transaction that is pushing the same key. All of them are pushed, or none.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_push_each
    @p_messages nvarchar(max),
    @p_on_conflict varchar(6) = 'raise',
    @p_producer nvarchar(512) = null,
    @p_now datetime2(6) = null
with execute as owner
as
begin
    set xact_abort, nocount on;
    begin try
        begin transaction;
        if @p_messages is null or isjson(@p_messages) = 0 or left(ltrim(@p_messages), 1) <> N'['
            throw 51001, N'The messages are no JSON array. Give an array of objects.', 1;
        if (select count(*) from openjson(@p_messages)) > 1000
            throw 51001, N'There are more than 1000 messages. Give fewer in one call.', 1;
        if exists (select 1 from openjson(@p_messages) where type <> 5)
            throw 51001, N'A message is no JSON object. Give each as an object with a payload.', 1;
        if @p_on_conflict is null or @p_on_conflict not in ('raise', 'skip', 'return')
            throw 51001, N'on_conflict is not known. Give raise, skip or return.', 1;
        declare @given table (
            place int not null primary key, payload nvarchar(max), headers nvarchar(max), delay float,
            due datetime2(6), priority int, group_key nvarchar(510), dedup_key nvarchar(510)
        );
        insert into @given (place, payload, headers, delay, due, priority, group_key, dedup_key)
        select
            cast(entry.[key] as int), given.payload, given.headers, given.delay, given.due, given.priority,
            given.group_key, given.dedup_key
        from openjson(@p_messages) as entry
        cross apply openjson(entry.value) with (
            payload nvarchar(max) '$.payload',
            headers nvarchar(max) '$.headers',
            delay float '$.delay',
            due datetime2(6) '$.due',
            priority int '$.priority',
            group_key nvarchar(510) '$.group',
            dedup_key nvarchar(510) '$.key'
        ) as given;
        if exists (select 1 from @given where payload is null)
            throw 51001, N'A message has no payload, or one that is no string. Give each a string.', 1;
        if exists (select 1 from @given where delay is not null and due is not null)
            throw 51001, N'Both delay and due are given. Give one of them.', 1;
        if exists (select 1 from @given where delay not between 0 and {longest})
            throw 51001, N'The delay is not from 0 to 100 years. Give another one.', 1;
        -- [not priority]
        if exists (select 1 from @given where priority is not null)
            throw 51001, N'The queue does not go by priority. Leave the priority out.', 1;
        -- [end]
        -- [groups]
        if exists (select 1 from @given where group_key is null or group_key = N'' or len(group_key) > 255)
            throw 51001, N'The queue has groups. Give the message its group, of 1 to 255 characters.', 1;
        -- [end]
        -- [not groups]
        if exists (select 1 from @given where group_key is not null)
            throw 51001, N'The queue has no groups. Leave the group out.', 1;
        -- [end]
        if exists (select 1 from @given where dedup_key = N'' or len(dedup_key) > 255)
            throw 51001, N'The key is not of 1 to 255 characters. Give another one.', 1;
        set @p_producer = coalesce(@p_producer, original_login());
        declare @rows nvarchar(max) = coalesce((
            select
                payload, headers, due, coalesce(priority, 0) as priority, dedup_key as [key],
                -- [strict]
                N'' as [group],
                -- [end]
                -- [not strict]
                group_key as [group],
                -- [end]
                -- [due]
                coalesce(delay, case when due is null then 0 end) as delay
                -- [end]
                -- [not due]
                delay
                -- [end]
            from @given
            order by place
            for json path
        ), N'[]');
        -- The ids come in the order of the messages, and so they are numbered.
        declare @pushed table (place int identity (0, 1) primary key, id bigint);
        insert into @pushed (id) exec {queue}_insert_each @rows, @p_producer, @p_now;
        if @p_on_conflict = 'raise' and exists (select 1 from @pushed where id is null)
            throw 51002, N'Some live messages have these keys already. Push with other keys, or skip conflicts.', 1;
        declare @there table (dedup_key nvarchar(510), id bigint);
        declare @keys nvarchar(max) = (
            select N'[' + string_agg(N'"' + cast(string_escape(given.dedup_key, 'json') as nvarchar(max)) + N'"', N',')
                + N']'
            from @given as given inner join @pushed as pushed on pushed.place = given.place and pushed.id is null
        );
        if @p_on_conflict = 'return' and @keys is not null
            insert into @there exec {queue}_look_up @keys;
        select coalesce(pushed.id, there.id) as id
        from @pushed as pushed
        inner join @given as given on given.place = pushed.place
        left join @there as there
            on pushed.id is null
            and convert(varbinary(1020), there.dedup_key) = convert(varbinary(1020), given.dedup_key)
        order by pushed.place;
        commit transaction;
    end try
    begin catch
        -- Of the caller's transaction too: XACT_ABORT has doomed it.
        if xact_state() <> 0 rollback transaction;
        throw;
    end catch;
end;
go
