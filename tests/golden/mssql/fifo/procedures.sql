-- Filtered indexes need these two settings, which a procedure keeps from its creation.
set ansi_nulls, quoted_identifier on;
go

-- tq_emails__due: make up to @p_n messages ready that are due. Returns their number. For tq_emails__sweep.
create or alter procedure tq_emails__due
    @p_n bigint,
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    declare @n bigint = @p_n;
    declare @now datetime2(6) = coalesce(cast(@p_now as datetime2(6)), sysutcdatetime());
    with due as (
        select top (@n) id, state
        from tq_emails with (index (tq_emails__scheduled), rowlock, readpast, updlock, readcommittedlock)
        where state = 'scheduled' and due_at <= @now
        order by due_at
    )
    update due
    set state = 'ready';
    return @@rowcount;
end;
go

-- tq_emails__expired: make up to @p_n abandoned messages ready, or dead letters. Returns their number. For
-- tq_emails__sweep.
create or alter procedure tq_emails__expired
    @p_n bigint,
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    declare @n bigint = @p_n;
    declare @max_attempts int = 5;
    declare @now datetime2(6) = coalesce(cast(@p_now as datetime2(6)), sysutcdatetime());
    declare @error nvarchar(max) = N'lease expired';
    with expired as (
        select top (@n)
            id, state, attempts, cancelled_at, token, lease_until, group_key, consumer, errors
        from tq_emails with (index (tq_emails__in_progress), rowlock, readpast, updlock, readcommittedlock)
        where state = 'in_progress' and lease_until <= @now
        order by lease_until
    )
    update expired
    set state = case
            when cancelled_at is not null then state
            when attempts >= @max_attempts then 'dead'
            else 'ready'
        end,
        errors = case when cancelled_at is not null then errors else json_modify(
            case
                when (select count(*) from openjson(errors)) >= 10 then (
                    select kept.number, kept.attempt, kept.at, kept.consumer, kept.error
                    from openjson(errors) as entry
                    cross apply openjson(entry.value) with (
                        number int, attempt int, at nvarchar(33), consumer nvarchar(512), error nvarchar(max)
                    ) as kept
                    where cast(entry.[key] as int) < 3
                        or cast(entry.[key] as int) >= (select count(*) from openjson(errors)) - 6
                    order by cast(entry.[key] as int)
                    for json path, include_null_values
                )
                else coalesce(errors, N'[]')
            end,
            'append $', json_query((
                select
                    coalesce((
                        select top (1) coalesce(last.number, cast(entry.[key] as int) + 1)
                        from openjson(errors) as entry
                        cross apply openjson(entry.value) with (number int) as last
                        order by cast(entry.[key] as int) desc
                    ), 0) + 1 as number,
                    attempts as attempt, convert(nvarchar(33), @now, 126) as at, consumer, @error as error
                for json path, without_array_wrapper, include_null_values
            ))
        ) end,
        token = case when cancelled_at is not null then token end,
        lease_until = case when cancelled_at is not null then lease_until end;
    declare @moved int = @@rowcount;
    declare @told nvarchar(max) = N'[' + stuff((
        select concat(N',', id)
        from tq_emails with (index (tq_emails__in_progress), rowlock, readpast, readcommittedlock)
        where state = 'in_progress' and lease_until <= @now and cancelled_at is not null
        for xml path (N'')
    ), 1, 1, N'') + N']';
    exec tq_emails__cancel_held @told, null, N'lease expired', @p_now;
    return @moved;
end;
go

-- tq_emails__insert_each: the push of tq_emails_push_each, without its checks. @p_pushed is a JSON array of objects: the
-- place of a row in @p_rows, from 0 on, and its id. A row whose key is taken has no id.
create or alter procedure tq_emails__insert_each
    @p_rows nvarchar(max),
    @p_producer nvarchar(max),
    @p_now datetime2(6),
    @p_pushed nvarchar(max) output
as
begin
    set xact_abort, nocount on;
    declare @answers table (id bigint null, place int not null);
    declare @rows nvarchar(max) = cast(@p_rows as nvarchar(max));
    declare @producer nvarchar(512) = cast(@p_producer as nvarchar(512));
    declare @now datetime2(6) = coalesce(cast(@p_now as datetime2(6)), sysutcdatetime());
    declare @batch table (
        place int not null primary key,
        payload nvarchar(max) not null,
        headers nvarchar(max) null,
        priority int not null,
        group_key varbinary(1020) null,
        dedup_key varbinary(1020) null,
        due_at datetime2(6) null,
        fresh bit not null,
        index by_key nonclustered (dedup_key, place)
    );
    declare @pushed table (id bigint not null primary key);
    insert into @batch (place, payload, headers, priority, group_key, dedup_key, due_at, fresh)
    select
        cast(entry.[key] as int), given.payload, given.headers, given.priority,
        convert(varbinary(1020), given.group_key), convert(varbinary(1020), given.dedup_key),
        coalesce(given.due, later.due), 1
    from openjson(@rows) as entry
    cross apply openjson(entry.value) with (
        payload nvarchar(max) '$.payload',
        headers nvarchar(max) '$.headers',
        priority int '$.priority',
        group_key nvarchar(510) '$.group',
        dedup_key nvarchar(510) '$.key',
        due datetime2(6) '$.due',
        delay float '$.delay'
    ) as given
    cross apply (
        select dateadd(microsecond, cast(round((given.delay - floor(given.delay / 60) * 60) * 1e6, 0) as int),
        dateadd(minute, cast(floor(given.delay / 60) as int), @now)) as due
    ) as later;
    update batch
    set fresh = 0
    from @batch as batch
    where batch.dedup_key is not null
        and (
            exists (
                select 1 from @batch as earlier
                where earlier.dedup_key = batch.dedup_key and earlier.place < batch.place
            )
            or exists (
                select 1 from tq_emails as there with (readcommittedlock)
                where there.dedup_key = batch.dedup_key and there.dedup_key is not null
            )
        );
    insert into tq_emails (payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state)
    output inserted.id into @pushed (id)
    select
        payload, headers, @producer, priority, group_key, dedup_key, @now, due_at,
        case when due_at > @now then 'scheduled' else 'ready' end
    from @batch
    where fresh = 1
    order by place;
    insert into @answers
    select pushed.id, batch.place
    from (
        select place, fresh, row_number() over (partition by fresh order by place) as nth from @batch
    ) as batch
    left join (
        select id, row_number() over (order by id) as nth from @pushed
    ) as pushed on batch.fresh = 1 and pushed.nth = batch.nth
    order by batch.place;
    set @p_pushed = coalesce((select place, id from @answers for json path), N'[]');
end;
go

-- tq_emails__outdated: delete from the history what is older than its retention. For tq_emails__sweep.
create or alter procedure tq_emails__outdated
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    declare @n bigint = 1000;
    declare @age float = cast(2592000.0 as float);
    declare @now datetime2(6) = coalesce(cast(@p_now as datetime2(6)), sysutcdatetime());
    declare @before datetime2(6) = dateadd(microsecond, cast(round(((-@age) - floor((-@age) / 60) * 60) * 1e6, 0) as int),
        dateadd(minute, cast(floor((-@age) / 60) as int), @now));
    with gone as (
        select top (@n) id
        from tq_emails_history with (index (tq_emails__finished), rowlock, readpast, updlock, readcommittedlock)
        where finished_at <= @before or (finished_at is null and popped_at <= @before)
    )
    delete from gone;
end;
go

-- tq_emails__peek_blocked: the messages of tq_emails_peek that are blocked.
create or alter procedure tq_emails__peek_blocked
    @p_n bigint,
    @p_after bigint
as
begin
    set xact_abort, nocount on;
    declare @n bigint = @p_n;
    declare @after bigint = @p_after;
    select top (@n)
        id, payload, headers, state, attempts, priority, convert(nvarchar(510), group_key) as group_key,
        convert(nvarchar(510), dedup_key) as dedup_key, producer, consumer, pushed_at, due_at, first_popped_at, popped_at,
        lease_until, cast(null as datetime2(6)) as finished_at, errors
    from tq_emails
    where state = 'blocked' and id > @after
    order by id;
end;
go

-- tq_emails__peek_dead: the messages of tq_emails_peek that are dead.
create or alter procedure tq_emails__peek_dead
    @p_n bigint,
    @p_after bigint
as
begin
    set xact_abort, nocount on;
    declare @n bigint = @p_n;
    declare @after bigint = @p_after;
    select top (@n)
        id, payload, headers, state, attempts, priority, convert(nvarchar(510), group_key) as group_key,
        convert(nvarchar(510), dedup_key) as dedup_key, producer, consumer, pushed_at, due_at, first_popped_at, popped_at,
        lease_until, cast(null as datetime2(6)) as finished_at, errors
    from tq_emails
    where state = 'dead' and id > @after
    order by id;
end;
go

-- tq_emails__peek_in_progress: the messages of tq_emails_peek that are in_progress.
create or alter procedure tq_emails__peek_in_progress
    @p_n bigint,
    @p_after bigint
as
begin
    set xact_abort, nocount on;
    declare @n bigint = @p_n;
    declare @after bigint = @p_after;
    select top (@n)
        id, payload, headers, state, attempts, priority, convert(nvarchar(510), group_key) as group_key,
        convert(nvarchar(510), dedup_key) as dedup_key, producer, consumer, pushed_at, due_at, first_popped_at, popped_at,
        lease_until, cast(null as datetime2(6)) as finished_at, errors
    from tq_emails
    where state = 'in_progress' and id > @after
    order by id;
end;
go

-- tq_emails__peek_ready: the messages of tq_emails_peek that are ready.
create or alter procedure tq_emails__peek_ready
    @p_n bigint,
    @p_after bigint
as
begin
    set xact_abort, nocount on;
    declare @n bigint = @p_n;
    declare @after bigint = @p_after;
    select top (@n)
        id, payload, headers, state, attempts, priority, convert(nvarchar(510), group_key) as group_key,
        convert(nvarchar(510), dedup_key) as dedup_key, producer, consumer, pushed_at, due_at, first_popped_at, popped_at,
        lease_until, cast(null as datetime2(6)) as finished_at, errors
    from tq_emails
    where state = 'ready' and id > @after
    order by id;
end;
go

-- tq_emails__peek_scheduled: the messages of tq_emails_peek that are scheduled.
create or alter procedure tq_emails__peek_scheduled
    @p_n bigint,
    @p_after bigint
as
begin
    set xact_abort, nocount on;
    declare @n bigint = @p_n;
    declare @after bigint = @p_after;
    select top (@n)
        id, payload, headers, state, attempts, priority, convert(nvarchar(510), group_key) as group_key,
        convert(nvarchar(510), dedup_key) as dedup_key, producer, consumer, pushed_at, due_at, first_popped_at, popped_at,
        lease_until, cast(null as datetime2(6)) as finished_at, errors
    from tq_emails
    where state = 'scheduled' and id > @after
    order by id;
end;
go

-- tq_emails__sweep: make messages ready that are due or abandoned, up to @p_n of each kind. Returns how many, or -1 if
-- the last sweep of this session was less than @p_every milliseconds ago. For pop and take.
-- In a caller's transaction, no other consumer can claim these messages until the commit. So there pop and take sweep
-- only as many as they want, and else 1,000. The session remembers the time of its last sweep in its context.
create or alter procedure tq_emails__sweep
    @p_every bigint,
    @p_n bigint,
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    declare @clock bigint = datediff_big(millisecond, '2000-01-01', sysutcdatetime());
    if @p_now is null and @clock < convert(bigint, session_context(N'tq_emails')) + @p_every return -1;
    exec sys.sp_set_session_context @key = N'tq_emails', @value = @clock;
    declare @moved int;
    exec @moved = tq_emails__due @p_n, @p_now;
    declare @more int;
    exec @more = tq_emails__expired @p_n, @p_now;
    set @moved = @moved + @more;
    exec tq_emails__outdated @p_now;
    return @moved;
end;
go

-- tq_emails__cancel_held: the messages of the JSON array @p_ids that are held under @p_token, and were told to stop, end.
-- If @p_token is null, those whose lease has expired. Returns their number. For tq_emails_fail, tq_emails_release and
-- tq_emails__expired.
create or alter procedure tq_emails__cancel_held
    @p_ids nvarchar(max),
    @p_token uniqueidentifier,
    @p_error nvarchar(max),
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    declare @ids nvarchar(max) = cast(@p_ids as nvarchar(max));
    declare @token uniqueidentifier = cast(@p_token as uniqueidentifier);
    declare @error nvarchar(max) = cast(@p_error as nvarchar(max));
    declare @now datetime2(6) = coalesce(cast(@p_now as datetime2(6)), sysutcdatetime());
    declare @held table (id bigint not null primary key);
    insert into @held (id)
    select message.id
    from tq_emails as message with (rowlock, readcommittedlock, forceseek)
    where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
        and message.cancelled_at is not null
        and (message.token = @token or (@token is null and message.lease_until <= @now));
    declare @message table (id bigint not null primary key, group_key varbinary(1020) null);
    insert into @message (id, group_key)
    select message.id, message.group_key
    from tq_emails as message with (rowlock, updlock, forceseek)
    where message.id in (select held.id from @held as held)
        and message.cancelled_at is not null
        and (message.token = @token or (@token is null and message.lease_until <= @now));
    update message
    set errors = json_modify(
        case
            when (select count(*) from openjson(errors)) >= 10 then (
                select kept.number, kept.attempt, kept.at, kept.consumer, kept.error
                from openjson(errors) as entry
                cross apply openjson(entry.value) with (
                    number int, attempt int, at nvarchar(33), consumer nvarchar(512), error nvarchar(max)
                ) as kept
                where cast(entry.[key] as int) < 3
                    or cast(entry.[key] as int) >= (select count(*) from openjson(errors)) - 6
                order by cast(entry.[key] as int)
                for json path, include_null_values
            )
            else coalesce(errors, N'[]')
        end,
        'append $', json_query((
            select
                coalesce((
                    select top (1) coalesce(last.number, cast(entry.[key] as int) + 1)
                    from openjson(errors) as entry
                    cross apply openjson(entry.value) with (number int) as last
                    order by cast(entry.[key] as int) desc
                ), 0) + 1 as number,
                attempts as attempt, convert(nvarchar(33), @now, 126) as at, consumer, @error as error
            for json path, without_array_wrapper, include_null_values
        ))
    )
    from tq_emails as message with (rowlock, forceseek)
    where @error is not null and message.id in (select there.id from @message as there);
    delete from message
    output
        deleted.id, deleted.attempts, deleted.priority, deleted.pushed_at, deleted.due_at, deleted.first_popped_at,
        deleted.popped_at, @now, convert(nvarchar(510), deleted.group_key), convert(nvarchar(510), deleted.dedup_key),
        deleted.producer, deleted.consumer, deleted.headers, deleted.errors, deleted.payload,
        'cancelled'
    into tq_emails_history (
        id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key, dedup_key, producer,
        consumer, headers, errors, payload,
        outcome
    )
    from tq_emails as message with (rowlock, forceseek)
    where message.id in (select there.id from @message as there);;
    return (select count(*) from @message);
end;
go

-- tq_emails_push: push one message, for producers. Returns its id. If a live message has its key: error 51002, or with
-- @p_on_conflict 'skip' null, or with 'return' the id of that message. If two transactions push a key at the same
-- moment, one of them may get error 2601 instead, and must be tried again.
-- Locks: a key waits for another transaction that is pushing the same one. A crash before the commit leaves nothing.
create or alter procedure tq_emails_push
    @p_payload nvarchar(max),
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
    set ansi_padding, ansi_warnings, arithabort, concat_null_yields_null, xact_abort, nocount on;
    set numeric_roundabort off;
    set transaction isolation level read committed;
    declare @alone bit = case when @@trancount = 0 and @@options & 2 = 0 then 1 else 0 end;
    begin try
        begin transaction;
        if @p_payload is null throw 51001, N'There is no payload. Give the message one.', 1;
        if isjson(N'[' + @p_payload + N']') = 0
            or (
                select count(*)
                from openjson(case when isjson(N'[' + @p_payload + N']') = 1 then N'[' + @p_payload + N']' end)
            ) <> 1
            throw 51001, N'The payload is no JSON. Give the text of one value.', 1;
        if @p_headers is not null and isjson(@p_headers) = 0
            throw 51001, N'The headers are no JSON object. Give an object.', 1;
        if (select max(type) from openjson(N'[' + @p_headers + N']')) <> 5
            throw 51001, N'The headers are no JSON object. Give an object.', 1;
        if @p_delay is not null and @p_due is not null
            throw 51001, N'Both delay and due are given. Give one of them.', 1;
        if @p_delay not between 0 and 3200000000
            throw 51001, N'The delay is not from 0 to 100 years. Give another one.', 1;
        if @p_expires is not null throw 51001, N'The messages of this queue do not expire. Leave the seconds out.', 1;
        if @p_priority is not null
            throw 51001, N'The queue does not go by priority. Leave the priority out.', 1;
        if @p_group is not null throw 51001, N'The queue has no groups. Leave the group out.', 1;
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
        declare @due_utc datetime2(6) = cast(switchoffset(@p_due, '+00:00') as datetime2(6));
        declare @id bigint;
        declare @words nvarchar(2048);
        declare @pushed table (id bigint not null primary key);
        while 1 = 1
        begin
            declare @payload nvarchar(max) = cast(@p_payload as nvarchar(max));
            declare @headers nvarchar(max) = cast(@p_headers as nvarchar(max));
            declare @producer nvarchar(512) = cast(@p_producer as nvarchar(512));
            declare @priority int = @p_priority;
            declare @group varbinary(1020) = convert(varbinary(1020), cast(@p_group as nvarchar(510)));
            declare @key varbinary(1020) = convert(varbinary(1020), cast(@p_key as nvarchar(510)));
            declare @delay float = cast(@p_delay as float);
            declare @now datetime2(6) = coalesce(cast(@p_now as datetime2(6)), sysutcdatetime());
            declare @due datetime2(6) = coalesce(cast(@due_utc as datetime2(6)), dateadd(microsecond, cast(round((@delay - floor(@delay / 60) * 60) * 1e6, 0) as int),
                dateadd(minute, cast(floor(@delay / 60) as int), @now)));
            insert into tq_emails (payload, headers, producer, priority, group_key, dedup_key, pushed_at, due_at, state)
            output inserted.id
            into @pushed
            select
                @payload, @headers, @producer, @priority, @group, @key, @now, @due,
                case when @due > @now then 'scheduled' else 'ready' end
            where @key is null
                or not exists (
                    select 1 from tq_emails as there with (readcommittedlock)
                    where there.dedup_key = @key and there.dedup_key is not null
                );
            -- Not SCOPE_IDENTITY(): an OUTPUT ... INTO a table with an identity of its own changes that.
            set @id = (select id from @pushed);
            if @id is not null or @p_on_conflict = 'skip' break;
            if @p_on_conflict = 'raise'
            begin
                set @words = N'A live message has the key ' + replace(@p_key, N'%', N'%%') + N' already. '
                    + N'Push with another key, or have conflicts skipped.';
                throw 51002, @words, 1;
            end;
            select @id = there.id
            from tq_emails as there with (readcommittedlock)
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

-- tq_emails_push_many: push each string of a JSON array as a payload (1,000 at the most), for producers. Returns ids
-- in that order. A payload of JSON is the string of its text, one of bytes is in hexadecimal digits.
-- Locks: none that another transaction waits for. All of them are pushed, or none.
create or alter procedure tq_emails_push_many
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
        if exists (
            select 1 from openjson(@p_messages) as batch
            where isjson(N'[' + batch.value + N']') = 0
                or (
                    select count(*)
                    from openjson(case when isjson(N'[' + batch.value + N']') = 1 then N'[' + batch.value + N']' end)
                ) <> 1
        )
            throw 51001, N'A payload is no JSON. Give each as the text of one value.', 1;
        if @p_headers is not null and isjson(@p_headers) = 0
            throw 51001, N'The headers are no JSON object. Give an object.', 1;
        if (select max(type) from openjson(N'[' + @p_headers + N']')) <> 5
            throw 51001, N'The headers are no JSON object. Give an object.', 1;
        if @p_delay is not null and @p_due is not null
            throw 51001, N'Both delay and due are given. Give one of them.', 1;
        if @p_delay not between 0 and 3200000000
            throw 51001, N'The delay is not from 0 to 100 years. Give another one.', 1;
        if @p_expires is not null throw 51001, N'The messages of this queue do not expire. Leave the seconds out.', 1;
        if @p_priority is not null
            throw 51001, N'The queue does not go by priority. Leave the priority out.', 1;
        if @p_group is not null throw 51001, N'The queue has no groups. Leave the group out.', 1;
        if datalength(@p_producer) > 1024
            throw 51001, N'The name of the producer is longer than 512 characters. Give a shorter one.', 1;
        set @p_producer = coalesce(@p_producer, original_login());
        set @p_priority = coalesce(@p_priority, 0);
        declare @due_utc datetime2(6) = cast(switchoffset(@p_due, '+00:00') as datetime2(6));
        declare @pushed table (id bigint not null primary key);
        declare @payloads nvarchar(max) = cast(@p_messages as nvarchar(max));
        declare @headers nvarchar(max) = cast(@p_headers as nvarchar(max));
        declare @producer nvarchar(512) = cast(@p_producer as nvarchar(512));
        declare @priority int = @p_priority;
        declare @group varbinary(1020) = convert(varbinary(1020), cast(@p_group as nvarchar(510)));
        declare @delay float = cast(@p_delay as float);
        declare @now datetime2(6) = coalesce(cast(@p_now as datetime2(6)), sysutcdatetime());
        declare @due datetime2(6) = coalesce(cast(@due_utc as datetime2(6)), dateadd(microsecond, cast(round((@delay - floor(@delay / 60) * 60) * 1e6, 0) as int),
            dateadd(minute, cast(floor(@delay / 60) as int), @now)));
        insert into tq_emails (payload, headers, producer, priority, group_key, pushed_at, due_at, state)
        output inserted.id
        into @pushed
        select
            batch.value, @headers, @producer, @priority, @group, @now, @due,
            case when @due > @now then 'scheduled' else 'ready' end
        from openjson(@payloads) as batch
        order by cast(batch.[key] as int);
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

-- tq_emails_push_each: push a JSON array of messages with options of their own (1,000 at the most), for producers.
-- Returns the ids in order. A message is an object: payload, and optionally headers, delay, due, priority, group, key,
-- expires.
-- A payload of JSON and headers are strings of their text, a payload of bytes is in hexadecimal digits.
-- If a live message has the key of one: error 51002 and none is pushed, or with @p_on_conflict 'skip' null for that
-- one, or with 'return' the id of the live message. If two transactions push a key at the same moment, one of them may
-- get error 2601 instead, and must be tried again.
-- Locks: a message waits for another transaction that is pushing the same key. All of them are pushed, or none.
create or alter procedure tq_emails_push_each
    @p_messages nvarchar(max),
    @p_on_conflict varchar(20) = 'raise',
    @p_producer nvarchar(max) = null,
    @p_now datetime2(6) = null
as
begin
    set ansi_padding, ansi_warnings, arithabort, concat_null_yields_null, xact_abort, nocount on;
    set numeric_roundabort off;
    set transaction isolation level read committed;
    declare @alone bit = case when @@trancount = 0 and @@options & 2 = 0 then 1 else 0 end;
    begin try
        begin transaction;
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
        if exists (
            select 1 from @given
            where isjson(N'[' + payload + N']') = 0
                or (
                    select count(*)
                    from openjson(case when isjson(N'[' + payload + N']') = 1 then N'[' + payload + N']' end)
                ) <> 1
        )
            throw 51001, N'A payload is no JSON. Give each as the text of one value.', 1;
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
        if exists (select 1 from @given where delay not between 0 and 3200000000)
            throw 51001, N'The delay is not from 0 to 100 years. Give another one.', 1;
        if exists (select 1 from @given where expires is not null)
            throw 51001, N'The messages of this queue do not expire. Leave the seconds out.', 1;
        if exists (select 1 from @given where priority is not null)
            throw 51001, N'The queue does not go by priority. Leave the priority out.', 1;
        if exists (select 1 from @given where group_key is not null)
            throw 51001, N'The queue has no groups. Leave the group out.', 1;
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
                    given.payload, given.headers, cast(switchoffset(given.due, '+00:00') as datetime2(6)) as due,
                    coalesce(given.priority, 0) as priority, given.dedup_key as [key],
                    given.group_key as [group],
                    given.delay
                from @given as given
                inner join @answers as answer on answer.place = given.place
                where answer.id is null
                order by given.place
                for json path
            ), N'[]');
            exec tq_emails__insert_each @rows, @p_producer, @p_now, @pushed output;
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
            inner join tq_emails as there with (readcommittedlock)
                on there.dedup_key = convert(varbinary(1020), given.dedup_key) and there.dedup_key is not null
            where answer.id is null;
            -- Otherwise the message with that key was finished between the two statements: push again.
            if not exists (select 1 from @answers where id is null) break;
        end;
        select id from @answers order by place;
        commit transaction;
    end try
    begin catch
        -- XACT_ABORT dooms a caller's transaction, which the caller must end; an INSERT ... EXEC ends its own.
        if @alone = 1 and xact_state() <> 0 rollback transaction;
        throw;
    end catch;
end;
go

-- tq_emails_cancel: cancel the messages of the JSON array @p_ids, for producers. Returns those that there are, and
-- whether each was told. A message that waits, or is a dead letter, leaves the queue. One in progress is told to stop:
-- if it fails, is released, or loses its lease, it ends. If its consumer completes it, it is completed.
-- Locks: the messages, until the transaction ends. A crash before the commit cancels none of them.
create or alter procedure tq_emails_cancel
    @p_ids nvarchar(max),
    @p_now datetime2(6) = null
as
begin
    set ansi_padding, ansi_warnings, arithabort, concat_null_yields_null, xact_abort, nocount on;
    set numeric_roundabort off;
    set transaction isolation level read committed;
    declare @alone bit = case when @@trancount = 0 and @@options & 2 = 0 then 1 else 0 end;
    begin try
        begin transaction;
        declare @ids nvarchar(max) = cast(@p_ids as nvarchar(max));
        declare @now datetime2(6) = coalesce(cast(@p_now as datetime2(6)), sysutcdatetime());
        declare @message table (id bigint not null primary key, told bit not null, group_key varbinary(1020) null);
        insert into @message (id, told, group_key)
        select message.id, case when message.state = 'in_progress' then 1 else 0 end, message.group_key
        from tq_emails as message with (rowlock, updlock, forceseek)
        where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given);
        update message
        set cancelled_at = coalesce(message.cancelled_at, @now)
        from tq_emails as message with (rowlock, forceseek)
        where message.id in (select there.id from @message as there where there.told = 1);
        delete from message
        output
            deleted.id, deleted.attempts, deleted.priority, deleted.pushed_at, deleted.due_at, deleted.first_popped_at,
            deleted.popped_at, @now, convert(nvarchar(510), deleted.group_key), convert(nvarchar(510), deleted.dedup_key),
            deleted.producer, deleted.consumer, deleted.headers, deleted.errors, deleted.payload,
            'cancelled'
        into tq_emails_history (
            id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key, dedup_key, producer,
            consumer, headers, errors, payload,
            outcome
        )
        from tq_emails as message with (rowlock, forceseek)
        where message.id in (select there.id from @message as there where there.told = 0);;
        commit transaction;
    end try
    begin catch
        -- XACT_ABORT dooms a caller's transaction, which the caller must end; an INSERT ... EXEC ends its own.
        if @alone = 1 and xact_state() <> 0 rollback transaction;
        throw;
    end catch;
    select id, told from @message;
end;
go

-- tq_emails_pop: claim up to @p_n ready messages (1,000 at the most), for consumers; in the order of the queue, each with
-- the token that finishes it. The lease is of @p_lease seconds (else 60.0); at most once there is none.
-- Locks: the messages, until the transaction ends; locked rows are skipped.
-- A consumer that dies leaves them in progress; a later pop returns them when the lease has expired.
create or alter procedure tq_emails_pop
    @p_n bigint = 1,
    @p_consumer nvarchar(max) = null,
    @p_lease float = null,
    @p_now datetime2(6) = null
as
begin
    set ansi_padding, ansi_warnings, arithabort, concat_null_yields_null, xact_abort, nocount on;
    set numeric_roundabort off;
    set transaction isolation level read committed;
    declare @alone bit = case when @@trancount = 0 and @@options & 2 = 0 then 1 else 0 end;
    begin try
        begin transaction;
        if @p_n is null or @p_n not between 1 and 1000
            throw 51001, N'n is not from 1 to 1000. Give another one.', 1;
        set @p_lease = coalesce(@p_lease, 60.0);
        if @p_lease not between 0 and 3200000000
            throw 51001, N'The lease is not from 0 to 100 years. Give another one.', 1;
        if datalength(@p_consumer) > 1024
            throw 51001, N'The name of the consumer is longer than 512 characters. Give a shorter one.', 1;
        set @p_consumer = coalesce(@p_consumer, original_login());
        declare @p_token uniqueidentifier = newid();
        declare @most bigint = case @alone when 1 then 1000 else @p_n end;
        declare @swept bit = 0;
        declare @turn int = 0;
        declare @moved int;
        declare @claimed table (
            id bigint, payload nvarchar(max), headers nvarchar(max), attempts int, pushed_at datetime2(6),
            popped_at datetime2(6), lease_until datetime2(6), priority int, group_key nvarchar(510),
            dedup_key nvarchar(510), due_at datetime2(6), errors nvarchar(max)
        );
        exec @moved = tq_emails__sweep 1000, @most, @p_now;
        if @moved >= 0 set @swept = 1;
        while @turn < 2
        begin
            declare @n bigint = @p_n;
            declare @token uniqueidentifier = cast(@p_token as uniqueidentifier);
            declare @consumer nvarchar(512) = cast(@p_consumer as nvarchar(512));
            declare @lease float = cast(@p_lease as float);
            declare @now datetime2(6) = coalesce(cast(@p_now as datetime2(6)), sysutcdatetime());
            declare @until datetime2(6) = dateadd(microsecond, cast(round((@lease - floor(@lease / 60) * 60) * 1e6, 0) as int),
                dateadd(minute, cast(floor(@lease / 60) as int), @now));
            with next as (
                select top (@n)
                    id, state, attempts, priority, token, pushed_at, due_at, first_popped_at, popped_at, lease_until, group_key,
                    dedup_key, consumer, headers, errors, payload
                from tq_emails with (index (tq_emails__ready), rowlock, readpast, updlock, readcommittedlock)
                where state = 'ready' and not exists (select 1 from tq__paused where name = 'tq_emails' and until > @now)
                order by id
            )
            update next
            set state = 'in_progress',
                attempts = attempts + 1,
                token = @token,
                consumer = @consumer,
                popped_at = @now,
                first_popped_at = coalesce(first_popped_at, @now),
                lease_until = @until
            output
                inserted.id, inserted.payload, inserted.headers, inserted.attempts, inserted.pushed_at, inserted.popped_at,
                inserted.lease_until, inserted.priority, convert(nvarchar(510), inserted.group_key) as group_key,
                convert(nvarchar(510), inserted.dedup_key) as dedup_key, inserted.due_at, inserted.errors
            into @claimed;
            set @p_n = @p_n - @@rowcount;
            if @p_n <= 0 or @swept = 1 break;
            set @swept = 1;
            set @most = case @alone when 1 then 1000 else @p_n end;
            exec @moved = tq_emails__sweep 0, @most, @p_now;
            if @moved = 0 break;
            set @turn = @turn + 1;
        end;

        select
            id, payload, headers, attempts, pushed_at, popped_at, lease_until, priority, group_key, dedup_key, due_at,
            errors,
            @p_token as token
        from @claimed
        order by id;
        commit transaction;
    end try
    begin catch
        -- XACT_ABORT dooms a caller's transaction, which the caller must end; an INSERT ... EXEC ends its own.
        if @alone = 1 and xact_state() <> 0 rollback transaction;
        throw;
    end catch;
end;
go

-- tq_emails_take: remove up to @p_n ready messages (1,000 at the most), for consumers; in the order of the queue. They
-- are finished when the transaction commits.
-- Locks: the messages, until the transaction ends; locked rows are skipped.
-- A rollback puts all of them back, a crash before the commit too.
create or alter procedure tq_emails_take
    @p_n bigint = 1,
    @p_consumer nvarchar(max) = null,
    @p_now datetime2(6) = null
as
begin
    set ansi_padding, ansi_warnings, arithabort, concat_null_yields_null, xact_abort, nocount on;
    set numeric_roundabort off;
    set transaction isolation level read committed;
    declare @alone bit = case when @@trancount = 0 and @@options & 2 = 0 then 1 else 0 end;
    begin try
        begin transaction;
        if @p_n is null or @p_n not between 1 and 1000
            throw 51001, N'n is not from 1 to 1000. Give another one.', 1;
        if datalength(@p_consumer) > 1024
            throw 51001, N'The name of the consumer is longer than 512 characters. Give a shorter one.', 1;
        set @p_consumer = coalesce(@p_consumer, original_login());
        declare @most bigint = case @alone when 1 then 1000 else @p_n end;
        declare @swept bit = 0;
        declare @turn int = 0;
        declare @moved int;
        declare @claimed table (
            id bigint, attempts int, priority int, token uniqueidentifier, pushed_at datetime2(6), due_at datetime2(6),
            first_popped_at datetime2(6), popped_at datetime2(6), finished_at datetime2(6), group_key nvarchar(510),
            dedup_key nvarchar(510), producer nvarchar(512), consumer nvarchar(512), headers nvarchar(max),
            errors nvarchar(max), payload nvarchar(max)
        );
        exec @moved = tq_emails__sweep 1000, @most, @p_now;
        if @moved >= 0 set @swept = 1;
        while @turn < 2
        begin
            declare @n bigint = @p_n;
            declare @token uniqueidentifier = cast(null as uniqueidentifier);
            declare @consumer nvarchar(512) = cast(@p_consumer as nvarchar(512));
            declare @now datetime2(6) = coalesce(cast(@p_now as datetime2(6)), sysutcdatetime());
            with next as (
                select top (@n)
                    id, attempts, priority, pushed_at, due_at, first_popped_at, group_key, dedup_key, producer, headers, errors,
                    payload
                from tq_emails with (index (tq_emails__ready), rowlock, readpast, updlock, readcommittedlock)
                where state = 'ready' and not exists (select 1 from tq__paused where name = 'tq_emails' and until > @now)
                order by id
            )
            delete from next
            output
                deleted.id, deleted.attempts + 1, deleted.priority, @token, deleted.pushed_at, deleted.due_at,
                coalesce(deleted.first_popped_at, @now), @now, case when @token is null then @now end,
                convert(nvarchar(510), deleted.group_key), convert(nvarchar(510), deleted.dedup_key), deleted.producer, @consumer,
                deleted.headers, deleted.errors, deleted.payload
            into @claimed (
                id, attempts, priority, token, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key, dedup_key,
                producer, consumer, headers, errors, payload
            );
            set @p_n = @p_n - @@rowcount;
            if @p_n <= 0 or @swept = 1 break;
            set @swept = 1;
            set @most = case @alone when 1 then 1000 else @p_n end;
            exec @moved = tq_emails__sweep 0, @most, @p_now;
            if @moved = 0 break;
            set @turn = @turn + 1;
        end;

        insert into tq_emails_history (
            id, attempts, priority, token, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key,
            dedup_key, producer, consumer, headers, errors, payload
        )
        select
            id, attempts, priority, token, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key,
            dedup_key, producer, consumer, headers, errors, payload
        from @claimed;
        select
            id, payload, headers, attempts, pushed_at, popped_at, cast(null as datetime2(6)) as lease_until, priority,
            group_key, dedup_key, due_at, errors
        from @claimed
        order by id;
        commit transaction;
    end try
    begin catch
        -- XACT_ABORT dooms a caller's transaction, which the caller must end; an INSERT ... EXEC ends its own.
        if @alone = 1 and xact_state() <> 0 rollback transaction;
        throw;
    end catch;
end;
go

-- tq_emails_complete: complete the messages of the JSON array @p_ids that @p_token holds, for consumers; returns their
-- ids.
-- Error 51003 if it holds none of them: an error undoes the call, so it cannot be raised for some of them.
-- Locks: the messages, until the transaction ends. A crash before the commit finishes none of them.
create or alter procedure tq_emails_complete
    @p_ids nvarchar(max),
    @p_token uniqueidentifier,
    @p_now datetime2(6) = null,
    @p_result nvarchar(max) = null
as
begin
    set ansi_padding, ansi_warnings, arithabort, concat_null_yields_null, xact_abort, nocount on;
    set numeric_roundabort off;
    set transaction isolation level read committed;
    declare @alone bit = case when @@trancount = 0 and @@options & 2 = 0 then 1 else 0 end;
    begin try
        begin transaction;
        if @p_result is not null throw 51001, N'This queue keeps no results. Leave the result out.', 1;
        declare @done table (id bigint not null primary key, group_key varbinary(1020) null);
        insert into @done (id, group_key)
        select message.id, message.group_key
        from tq_emails as message with (rowlock, updlock, forceseek)
        where message.id in (select given.id from openjson(@p_ids) with (id bigint '$') as given)
            and message.token = @p_token;
        if @@rowcount = 0 and exists (select 1 from openjson(@p_ids))
            throw 51003, N'The lease is lost: it expired, or the message was finished. Make it longer.', 1;
        declare @ids nvarchar(max) = cast(@p_ids as nvarchar(max));
        declare @token uniqueidentifier = cast(@p_token as uniqueidentifier);
        declare @now datetime2(6) = coalesce(cast(@p_now as datetime2(6)), sysutcdatetime());
        delete from message
        output
            deleted.id, deleted.attempts, deleted.priority, deleted.pushed_at, deleted.due_at, deleted.first_popped_at,
            deleted.popped_at, @now, convert(nvarchar(510), deleted.group_key), convert(nvarchar(510), deleted.dedup_key),
            deleted.producer, deleted.consumer, deleted.headers, deleted.errors, deleted.payload
        into tq_emails_history (
            id, attempts, priority, pushed_at, due_at, first_popped_at, popped_at, finished_at, group_key, dedup_key, producer,
            consumer, headers, errors, payload
        )
        from tq_emails as message with (rowlock, forceseek)
        where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
            and message.token = @token;
        commit transaction;
    end try
    begin catch
        -- XACT_ABORT dooms a caller's transaction, which the caller must end; an INSERT ... EXEC ends its own.
        if @alone = 1 and xact_state() <> 0 rollback transaction;
        throw;
    end catch;
    select id from @done;
end;
go

-- tq_emails_fail: fail the attempt on message @p_id, held under @p_token, for consumers. Returns its new state.
-- It is tried again after @p_retry_in seconds, or else by the backoff; after 5 attempts it is dead.
-- One that was told to stop is cancelled. At most once it stays lost. Error 51003 if the lease is lost.
-- Locks: the message, until the transaction ends.
-- A crash before the commit leaves the message in progress.
create or alter procedure tq_emails_fail
    @p_id bigint,
    @p_token uniqueidentifier,
    @p_error nvarchar(max) = N'',
    @p_retry_in float = null,
    @p_now datetime2(6) = null
as
begin
    set ansi_padding, ansi_warnings, arithabort, concat_null_yields_null, xact_abort, nocount on;
    set numeric_roundabort off;
    set transaction isolation level read committed;
    declare @alone bit = case when @@trancount = 0 and @@options & 2 = 0 then 1 else 0 end;
    declare @state varchar(11) = 'lost';
    begin try
        begin transaction;
        declare @p_delay float = @p_retry_in;
        if @p_delay not between 0 and 3200000000
            throw 51001, N'retry_in is not from 0 to 100 years. Give another one.', 1;
        set @p_error = coalesce(@p_error, N'');
        -- This collation counts a character of two code units as one, and does not cut it in two.
        if len((@p_error + N'.') collate Latin1_General_100_CI_AS_SC) - 1 > 8000
            set @p_error = concat(
                left(@p_error collate Latin1_General_100_CI_AS_SC, 3950), nchar(10), N'[... ',
                len((@p_error + N'.') collate Latin1_General_100_CI_AS_SC) - 1 - 2 * 3950,
                N' characters left out ...]', nchar(10),
                right(@p_error collate Latin1_General_100_CI_AS_SC, 3950)
            );
        if @p_delay is null
            select @p_delay = (
                select min(wait.seconds)
                from (values
                    (cast(3600.0 as float)),
                    (
                        cast(1.0 as float) * power(
                            cast(2.0 as float), case when attempts > 12 then 12 else attempts - 1 end
                        )
                    )
                ) as wait (seconds)
            ) * (1 - cast(0.1 as float) * rand())
            from tq_emails where id = @p_id and token = @p_token;
        declare @p_delays nvarchar(max) =
            concat(N'[[', @p_id, N',', coalesce(convert(nvarchar(40), @p_delay, 2), N'null'), N']]');
        declare @delays nvarchar(max) = cast(@p_delays as nvarchar(max));
        declare @token uniqueidentifier = cast(@p_token as uniqueidentifier);
        declare @max_attempts int = 5;
        declare @error nvarchar(max) = cast(@p_error as nvarchar(max));
        declare @now datetime2(6) = coalesce(cast(@p_now as datetime2(6)), sysutcdatetime());
        update message
        set state = case
                when attempts >= @max_attempts then 'dead'
                when given.delay > 0 then 'scheduled'
                else 'ready'
            end,
            due_at = case when attempts >= @max_attempts then due_at else dateadd(microsecond, cast(round((given.delay - floor(given.delay / 60) * 60) * 1e6, 0) as int),
            dateadd(minute, cast(floor(given.delay / 60) as int), @now)) end,
            errors = json_modify(
                case
                    when (select count(*) from openjson(errors)) >= 10 then (
                        select kept.number, kept.attempt, kept.at, kept.consumer, kept.error
                        from openjson(errors) as entry
                        cross apply openjson(entry.value) with (
                            number int, attempt int, at nvarchar(33), consumer nvarchar(512), error nvarchar(max)
                        ) as kept
                        where cast(entry.[key] as int) < 3
                            or cast(entry.[key] as int) >= (select count(*) from openjson(errors)) - 6
                        order by cast(entry.[key] as int)
                        for json path, include_null_values
                    )
                    else coalesce(errors, N'[]')
                end,
                'append $', json_query((
                    select
                        coalesce((
                            select top (1) coalesce(last.number, cast(entry.[key] as int) + 1)
                            from openjson(errors) as entry
                            cross apply openjson(entry.value) with (number int) as last
                            order by cast(entry.[key] as int) desc
                        ), 0) + 1 as number,
                        attempts as attempt, convert(nvarchar(33), @now, 126) as at, consumer, @error as error
                    for json path, without_array_wrapper, include_null_values
                ))
            ),
            token = null,
            lease_until = null
        from openjson(@delays) with (id bigint '$[0]', delay float '$[1]') as given
        inner join tq_emails as message with (rowlock, forceseek) on message.id = given.id
        where message.token = @token and message.cancelled_at is null;
        declare @changed bigint = @@rowcount;
        if @changed > 0
            select @state = state from tq_emails where id = @p_id;
        else
        begin
            declare @it nvarchar(max) = concat(N'[', @p_id, N']');
            exec @changed = tq_emails__cancel_held @it, @p_token, @p_error, @p_now;
            set @state = 'cancelled';
        end;
        if @changed = 0
            throw 51003, N'The lease is lost: it expired, or the message was finished. Make it longer.', 1;
        commit transaction;
    end try
    begin catch
        -- XACT_ABORT dooms a caller's transaction, which the caller must end; an INSERT ... EXEC ends its own.
        if @alone = 1 and xact_state() <> 0 rollback transaction;
        throw;
    end catch;
    select @state as state;
end;
go

-- tq_emails_release: release the messages of the JSON array @p_ids that are held under @p_token, for consumers. Returns
-- their ids. They are ready after @p_delay seconds, and the attempt does not count; those that were told to stop end.
-- Error 51003 if none is held.
-- Locks: the messages, until the transaction ends. A crash before the commit releases none of them.
create or alter procedure tq_emails_release
    @p_ids nvarchar(max),
    @p_token uniqueidentifier,
    @p_delay float = 0,
    @p_now datetime2(6) = null
as
begin
    set ansi_padding, ansi_warnings, arithabort, concat_null_yields_null, xact_abort, nocount on;
    set numeric_roundabort off;
    set transaction isolation level read committed;
    declare @alone bit = case when @@trancount = 0 and @@options & 2 = 0 then 1 else 0 end;
    begin try
        begin transaction;
        if @p_delay is null or @p_delay not between 0 and 3200000000
            throw 51001, N'The delay is not from 0 to 100 years. Give another one.', 1;
        declare @done table (id bigint not null primary key);
        insert into @done (id)
        select message.id
        from tq_emails as message with (rowlock, updlock, forceseek)
        where message.id in (select given.id from openjson(@p_ids) with (id bigint '$') as given)
            and message.token = @p_token;
        if @@rowcount = 0 and exists (select 1 from openjson(@p_ids))
            throw 51003, N'The lease is lost: it expired, or the message was finished. Make it longer.', 1;
        declare @ids nvarchar(max) = cast(@p_ids as nvarchar(max));
        declare @token uniqueidentifier = cast(@p_token as uniqueidentifier);
        declare @delay float = cast(@p_delay as float);
        declare @now datetime2(6) = coalesce(cast(@p_now as datetime2(6)), sysutcdatetime());
        declare @due datetime2(6) = dateadd(microsecond, cast(round((@delay - floor(@delay / 60) * 60) * 1e6, 0) as int),
            dateadd(minute, cast(floor(@delay / 60) as int), @now));
        update message
        set state = case when @delay > 0 then 'scheduled' else 'ready' end,
            due_at = case when @delay > 0 then @due else due_at end,
            attempts = attempts - 1,
            token = null,
            lease_until = null
        from tq_emails as message with (rowlock, forceseek)
        where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
            and message.token = @token and message.cancelled_at is null;
        exec tq_emails__cancel_held @p_ids, @p_token, null, @p_now;
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

-- tq_emails_extend: the lease on message @p_id, held under @p_token, ends @p_seconds (else 60.0) from now; for
-- consumers. Returns that end. Error 51003 if the lease is lost. Locks: the message, until the transaction ends.
create or alter procedure tq_emails_extend
    @p_id bigint,
    @p_token uniqueidentifier,
    @p_seconds float = null,
    @p_now datetime2(6) = null
as
begin
    set ansi_padding, ansi_warnings, arithabort, concat_null_yields_null, xact_abort, nocount on;
    set numeric_roundabort off;
    set transaction isolation level read committed;
    declare @alone bit = case when @@trancount = 0 and @@options & 2 = 0 then 1 else 0 end;
    begin try
        begin transaction;
        declare @p_lease float = coalesce(@p_seconds, 60.0);
        if @p_lease not between 0 and 3200000000
            throw 51001, N'The lease is not from 0 to 100 years. Give another one.', 1;
        declare @ids nvarchar(max) = cast(concat(N'[',@p_id,N']') as nvarchar(max));
        declare @token uniqueidentifier = cast(@p_token as uniqueidentifier);
        declare @lease float = cast(@p_lease as float);
        declare @now datetime2(6) = coalesce(cast(@p_now as datetime2(6)), sysutcdatetime());
        declare @until datetime2(6) = dateadd(microsecond, cast(round((@lease - floor(@lease / 60) * 60) * 1e6, 0) as int),
            dateadd(minute, cast(floor(@lease / 60) as int), @now));
        update message
        set lease_until = @until
        from tq_emails as message with (rowlock, forceseek)
        where message.id in (select given.id from openjson(@ids) with (id bigint '$') as given)
            and message.token = @token;
        if @@rowcount = 0
            throw 51003, N'The lease is lost: it expired, or the message was finished. Make it longer.', 1;
        select @until as lease_until;
        commit transaction;
    end try
    begin catch
        -- XACT_ABORT dooms a caller's transaction, which the caller must end; an INSERT ... EXEC ends its own.
        if @alone = 1 and xact_state() <> 0 rollback transaction;
        throw;
    end catch;
end;
go

-- tq_emails_stats: exact counts by state, the age in seconds of the first ready message, and how many are finished (null
-- if the queue keeps no history); for observers.
create or alter procedure tq_emails_stats
    @p_now datetime2(6) = null
as
begin
    set ansi_padding, ansi_warnings, arithabort, concat_null_yields_null, xact_abort, nocount on;
    set numeric_roundabort off;
    set transaction isolation level read committed;
    declare @live table (
        ready bigint, scheduled bigint, in_progress bigint, dead bigint, blocked bigint, oldest_age float
    );
    declare @ended table (finished bigint null);
    declare @now datetime2(6) = coalesce(cast(@p_now as datetime2(6)), sysutcdatetime());
    insert into @live
    select
        (select count_big(*) from tq_emails where state = 'ready') as ready,
        (select count_big(*) from tq_emails where state = 'scheduled') as scheduled,
        (select count_big(*) from tq_emails where state = 'in_progress') as in_progress,
        (select count_big(*) from tq_emails where state = 'dead') as dead,
        (select count_big(*) from tq_emails where state = 'blocked') as blocked,
        (
            select top (1) datediff_big(microsecond, pushed_at, @now) / 1e6
            from tq_emails where state = 'ready' order by id
        ) as oldest_age;
    insert into @ended
    select case when counts.counted < 100000 then counts.counted else coalesce(
        (select sum(rows) from sys.partitions where object_id = object_id(N'tq_emails_history') and index_id in (0, 1)),
        (select count_big(*) from tq_emails_history where finished_at is not null)
    ) end as finished
    from (
        select count_big(*) as counted from (
            select top (100000) finished_at from tq_emails_history where finished_at is not null
        ) as few
    ) as counts;
    select live.ready, live.scheduled, live.in_progress, live.dead, live.blocked, live.oldest_age, ended.finished
    from @live as live
    left join @ended as ended on 1 = 1;
end;
go

-- tq_emails_peek: the first @p_n messages of a state with ids above @p_after, claiming none; for observers.
create or alter procedure tq_emails_peek
    @p_n bigint = 10,
    @p_state varchar(20) = 'ready',
    @p_after bigint = 0
as
begin
    set ansi_padding, ansi_warnings, arithabort, concat_null_yields_null, xact_abort, nocount on;
    set numeric_roundabort off;
    set transaction isolation level read committed;
    if @p_state is null or @p_state not in ('ready', 'scheduled', 'in_progress', 'dead', 'blocked')
        throw 51001, N'The state is not known. Give ready, scheduled, in_progress, dead or blocked.', 1;
    -- The state is spelled into each statement: its index serves no parameter.
    if @p_state = 'ready' exec tq_emails__peek_ready @p_n, @p_after;
    if @p_state = 'scheduled' exec tq_emails__peek_scheduled @p_n, @p_after;
    if @p_state = 'in_progress' exec tq_emails__peek_in_progress @p_n, @p_after;
    if @p_state = 'dead' exec tq_emails__peek_dead @p_n, @p_after;
    if @p_state = 'blocked' exec tq_emails__peek_blocked @p_n, @p_after;
end;
go

-- tq_emails_read_history: the last @p_n finished messages with ids from @p_low to @p_high, highest id first; for
-- observers. Not tq_emails_history, which is the table.
create or alter procedure tq_emails_read_history
    @p_n bigint = 10,
    @p_low bigint = 0,
    @p_high bigint = 9223372036854775807
as
begin
    set ansi_padding, ansi_warnings, arithabort, concat_null_yields_null, xact_abort, nocount on;
    set numeric_roundabort off;
    set transaction isolation level read committed;
    declare @n bigint = @p_n;
    declare @low bigint = @p_low;
    declare @high bigint = @p_high;
    select top (@n)
        id, payload, headers,
        coalesce(outcome, case when finished_at is null then 'in_progress' else 'finished' end) as state, attempts,
        priority, group_key, dedup_key, producer, consumer, pushed_at, due_at, first_popped_at, popped_at,
        cast(null as datetime2(6)) as lease_until, finished_at, errors
    from tq_emails_history
    where id between @low and @high
    order by id desc;
end;
