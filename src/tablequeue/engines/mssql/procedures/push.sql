-- Procedures that push.

-- name: _insert_each
-- {queue}__insert_each: the push of {queue}_push_each, without its checks. @p_pushed is a JSON array of objects: the
-- place of a row in @p_rows, from 0 on, and its id. A row whose key is taken has no id.
create or alter procedure {queue}__insert_each
    @p_rows nvarchar(max),
    @p_producer nvarchar(max),
    @p_now datetime2(6),
    @p_pushed nvarchar(max) output
as
begin
    set xact_abort, nocount on;
    declare @answers table (id bigint null, place int not null);
    {sql push_each into=@answers};
    set @p_pushed = coalesce((select place, id from @answers for json path), N'[]');
end;

-- name: push
-- {queue}_push: push one message, for producers. Returns its id. If a live message has its key: error 51002, or with
-- @p_on_conflict 'skip' null, or with 'return' the id of that message. If two transactions push a key at the same
-- moment, one of them may get error 2601 instead, and must be tried again.
-- Locks: a key waits for another transaction that is pushing the same one. A crash before the commit leaves nothing.
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
    {begun}
        if @p_payload is null throw 51001, N'There is no payload. Give the message one.', 1;
        -- [json]
        if isjson(N'[' + @p_payload + N']') = 0
            or (
                select count(*)
                from openjson(case when isjson(N'[' + @p_payload + N']') = 1 then N'[' + @p_payload + N']' end)
            ) <> 1
            throw 51001, N'The payload is no JSON. Give the text of one value.', 1;
        -- [end]
        {checked_options}
        -- [unique_for]
        if @p_key is not null
            throw 51001, N'Keys of this queue stay taken for a time, which no procedure notes. Leave the key out.', 1;
        -- [end]
        if len((@p_key + N'.') collate Latin1_General_100_CI_AS_SC) - 1 not between 1 and 255
            throw 51001, N'The key is not of 1 to 255 characters. Give another one.', 1;
        if charindex(nchar(0), @p_key collate Latin1_General_100_BIN2) > 0
            throw 51001, N'The key has a NUL character. Give another one.', 1;
        if @p_on_conflict is null or @p_on_conflict not in ('raise', 'skip', 'return')
            throw 51001, N'on_conflict is not known. Give raise, skip or return.', 1;
        {filled_options}
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
    {ended}
end;

-- name: push_many
-- {queue}_push_many: push each string of a JSON array as a payload (1,000 at the most), for producers. Returns ids
-- in that order. A payload of JSON is the string of its text, one of bytes is in hexadecimal digits.
-- Locks: none that another transaction waits for. All of them are pushed, or none.
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
    {begun}
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
        {checked_options}
        {filled_options}
        declare @pushed table (id bigint not null primary key);
        {sql push_many payloads=@p_messages due=@due_utc into=@pushed};
        -- [grouped]
        insert into {turns} (group_key)
        select @group where exists (select 1 from @pushed);
        -- [end]
        -- The ids rise in the order of the messages.
        select id from @pushed order by id;
        commit transaction;
    {ended}
end;

-- name: push_each
-- {queue}_push_each: push a JSON array of messages with options of their own (1,000 at the most), for producers.
-- Returns the ids in order. A message is an object: payload, and optionally headers, delay, due, priority, group, key,
-- expires.
-- A payload of JSON and headers are strings of their text, a payload of bytes is in hexadecimal digits.
-- If a live message has the key of one: error 51002 and none is pushed, or with @p_on_conflict 'skip' null for that
-- one, or with 'return' the id of the live message. If two transactions push a key at the same moment, one of them may
-- get error 2601 instead, and must be tried again.
-- Locks: a message waits for another transaction that is pushing the same key. All of them are pushed, or none.
create or alter procedure {queue}_push_each
    @p_messages nvarchar(max),
    @p_on_conflict varchar(20) = 'raise',
    @p_producer nvarchar(max) = null,
    @p_now datetime2(6) = null
as
begin
    {begun}
        if @p_messages is null or isjson(@p_messages) = 0
            throw 51001, N'The messages are no JSON array. Give an array of objects.', 1;
        if (select max(type) from openjson(N'[' + @p_messages + N']')) <> 4
            throw 51001, N'The messages are no JSON array. Give an array of objects.', 1;
        if (select count(*) from openjson(@p_messages)) > 1000
            throw 51001, N'There are more than 1000 messages. Give fewer in one call.', 1;
        if exists (select 1 from openjson(@p_messages) where type <> 5)
            throw 51001, N'A message is no JSON object. Give each as an object with a payload.', 1;
        if @p_on_conflict is null or @p_on_conflict not in ('raise', 'skip', 'return')
            throw 51001, N'on_conflict is not known. Give raise, skip or return.', 1;
        declare @given table (
            place int not null primary key, payload nvarchar(max), headers nvarchar(max), delay float,
            expires float, due datetimeoffset(6), priority int, group_key nvarchar(max), dedup_key nvarchar(max)
        );
        insert into @given (place, payload, headers, delay, expires, due, priority, group_key, dedup_key)
        select
            cast(entry.[key] as int), given.payload, given.headers, given.delay, given.expires, given.due,
            given.priority, given.group_key, given.dedup_key
        from openjson(@p_messages) as entry
        cross apply openjson(entry.value) with (
            payload nvarchar(max) '$.payload',
            headers nvarchar(max) '$.headers',
            delay float '$.delay',
            expires float '$.expires',
            due datetimeoffset(6) '$.due',
            priority int '$.priority',
            group_key nvarchar(max) '$.group',
            dedup_key nvarchar(max) '$.key'
        ) as given;
        if exists (select 1 from @given where payload is null)
            throw 51001, N'A message has no payload, or one that is no string. Give each a string.', 1;
        -- [json]
        if exists (
            select 1 from @given
            where isjson(N'[' + payload + N']') = 0
                or (
                    select count(*)
                    from openjson(case when isjson(N'[' + payload + N']') = 1 then N'[' + payload + N']' end)
                ) <> 1
        )
            throw 51001, N'A payload is no JSON. Give each as the text of one value.', 1;
        -- [end]
        if exists (select 1 from @given where isjson(headers) = 0)
            throw 51001, N'The headers are no JSON object. Give an object.', 1;
        if exists (
            select 1
            from @given as given
            cross apply openjson(N'[' + given.headers + N']') as entry
            where entry.type <> 5
        )
            throw 51001, N'The headers are no JSON object. Give an object.', 1;
        if exists (select 1 from @given where delay is not null and due is not null)
            throw 51001, N'Both delay and due are given. Give one of them.', 1;
        if exists (select 1 from @given where delay not between 0 and {longest})
            throw 51001, N'The delay is not from 0 to 100 years. Give another one.', 1;
        -- [expires]
        if exists (select 1 from @given where expires <= 0 or expires > {longest})
            throw 51001, N'expires is not above 0, to 100 years. Give another number of seconds.', 1;
        -- [not expires]
        if exists (select 1 from @given where expires is not null)
            throw 51001, N'The messages of this queue do not expire. Leave the seconds out.', 1;
        -- [not priority]
        if exists (select 1 from @given where priority is not null)
            throw 51001, N'The queue does not go by priority. Leave the priority out.', 1;
        -- [groups]
        if exists (
            select 1 from @given
            where group_key is null
                or len((group_key + N'.') collate Latin1_General_100_CI_AS_SC) - 1 not between 1 and 255
        )
            throw 51001, N'The queue has groups. Give the message its group, of 1 to 255 characters.', 1;
        if exists (select 1 from @given where charindex(nchar(0), group_key collate Latin1_General_100_BIN2) > 0)
            throw 51001, N'The group has a NUL character. Give another one.', 1;
        -- [fair]
        if exists (
            select 1 from @given
            where len((group_key + N'.') collate Latin1_General_100_CI_AS_SC) - 1 not between 1 and 255
        )
            throw 51001, N'The group is not of 1 to 255 characters. Give another one.', 1;
        if exists (select 1 from @given where charindex(nchar(0), group_key collate Latin1_General_100_BIN2) > 0)
            throw 51001, N'The group has a NUL character. Give another one.', 1;
        -- [ungrouped]
        if exists (select 1 from @given where group_key is not null)
            throw 51001, N'The queue has no groups. Leave the group out.', 1;
        -- [unique_for]
        if exists (select 1 from @given where dedup_key is not null)
            throw 51001, N'Keys of this queue stay taken for a time, which no procedure notes. Leave the key out.', 1;
        -- [end]
        if exists (
            select 1 from @given
            where len((dedup_key + N'.') collate Latin1_General_100_CI_AS_SC) - 1 not between 1 and 255
        )
            throw 51001, N'The key is not of 1 to 255 characters. Give another one.', 1;
        if exists (select 1 from @given where charindex(nchar(0), dedup_key collate Latin1_General_100_BIN2) > 0)
            throw 51001, N'The key has a NUL character. Give another one.', 1;
        if datalength(@p_producer) > 1024
            throw 51001, N'The name of the producer is longer than 512 characters. Give a shorter one.', 1;
        set @p_producer = coalesce(@p_producer, original_login());
        declare @rows nvarchar(max);
        declare @pushed nvarchar(max);
        declare @answers table (place int not null primary key, id bigint null);
        insert into @answers (place) select place from @given;
        while 1 = 1
        begin
            set @rows = coalesce((
                select
                    -- [expires]
                    given.expires,
                    -- [end]
                    given.payload, given.headers, cast(switchoffset(given.due, '+00:00') as datetime2(6)) as due,
                    coalesce(given.priority, 0) as priority, given.dedup_key as [key],
                    -- [strict]
                    N'' as [group],
                    -- [not strict]
                    given.group_key as [group],
                    -- [due]
                    coalesce(given.delay, case when given.due is null then 0 end) as delay
                    -- [not due]
                    given.delay
                    -- [end]
                from @given as given
                inner join @answers as answer on answer.place = given.place
                where answer.id is null
                order by given.place
                for json path
            ), N'[]');
            exec {queue}__insert_each @rows, @p_producer, @p_now, @pushed output;
            update answer
            set id = pushed.id
            from @answers as answer
            inner join (
                select place, row_number() over (order by place) - 1 as nth from @answers where id is null
            ) as missing on missing.place = answer.place
            inner join openjson(@pushed) with (place int '$.place', id bigint '$.id') as pushed
                on pushed.place = missing.nth;
            if @p_on_conflict = 'skip' or not exists (select 1 from @answers where id is null) break;
            if @p_on_conflict = 'raise'
                throw 51002, N'Some live messages have these keys already. Push with other keys, or skip conflicts.', 1;
            update answer
            set id = there.id
            from @answers as answer
            inner join @given as given on given.place = answer.place
            inner join {queue} as there with (readcommittedlock)
                on there.dedup_key = convert(varbinary(1020), given.dedup_key) and there.dedup_key is not null
            where answer.id is null;
            -- Otherwise the message with that key was finished between the two statements: push again.
            if not exists (select 1 from @answers where id is null) break;
        end;
        select id from @answers order by place;
        commit transaction;
    {ended}
end;
