-- Procedures that claim and take.

-- name: _grant_rate
-- {queue}__grant_rate: return how many messages the rate allows now, and the time of that now. For pop and take.
-- It waits for other claims. Locks: the row of the rate, until the transaction ends.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}__grant_rate
    @p_now datetime2(6),
    @p_clock datetime2(6) output
as
begin
    set xact_abort, nocount on;
    declare @granted table (tokens bigint not null, clock varchar(33) not null);
    {sql grant_rate into=@granted};
    declare @tokens bigint;
    select @tokens = tokens, @p_clock = convert(datetime2(6), clock, 126) from @granted;
    return case when @tokens < 0 then 0 else @tokens end;
end;
go

-- name: _lock_slots
-- {queue}__lock_slots: lock up to @p_n free places. Returns how many, and the places as a JSON array. For pop.
-- Locks: the places, until the transaction ends; locked ones are skipped.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}__lock_slots
    @p_n bigint,
    @p_slots nvarchar(max) output
as
begin
    set xact_abort, nocount on;
    declare @slots table (slot bigint not null);
    {sql lock_slots into=@slots};
    set @p_slots = (select slot from @slots for json path);
    return (select count(*) from @slots);
end;
go

-- name: _note_slots
-- {queue}__note_slots: note in the places of @p_slots the messages of @p_ids, claimed under @p_token. For pop.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}__note_slots
    @p_slots nvarchar(max),
    @p_ids nvarchar(max),
    @p_token uniqueidentifier
as
begin
    set xact_abort, nocount on;
    declare @p_places nvarchar(max) = (
        select json_value(place.value, '$.slot') as slot, json_value(message.value, '$.id') as message
        from openjson(@p_slots) as place
        join openjson(@p_ids) as message on message.[key] = place.[key]
        for json path
    );
    {sql note_slots};
end;
go

-- name: _spend_group_rates
-- {queue}__spend_group_rates: spend the rates of the groups of a JSON array, each with the number of its messages that
-- the transaction has claimed. For pop and take.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}__spend_group_rates
    @p_by_group nvarchar(max),
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    {sql spend_group_rates};
end;
go

-- name: _spend_rate
-- {queue}__spend_rate: spend the rate of @p_number messages, which the transaction has claimed. For pop and take.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}__spend_rate
    @p_number bigint,
    @p_now datetime2(6)
as
begin
    set xact_abort, nocount on;
    {sql spend_rate};
end;
go

-- name: pop
-- {queue}_pop: claim up to @p_n ready messages (1,000 at the most), for consumers; in the order of the queue, each with
-- the token that finishes it. The lease is of @p_lease seconds (else {lease}); at most once there is none.
-- Locks: the messages, until the transaction ends; locked rows are skipped.
-- A consumer that dies leaves them in progress; a later pop returns them when the lease has expired.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_pop
    @p_n bigint = 1,
    @p_consumer nvarchar(max) = null,
    @p_lease float = null,
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
        if @p_n is null or @p_n not between 1 and 1000
            throw 51001, N'n is not from 1 to 1000. Give another one.', 1;
        -- [at_least_once]
        set @p_lease = coalesce(@p_lease, {lease});
        if @p_lease not between 0 and {longest}
            throw 51001, N'The lease is not from 0 to 100 years. Give another one.', 1;
        -- [end]
        -- [at_most_once]
        if @p_lease is not null throw 51001, N'A message delivered at most once has no lease. Leave it out.', 1;
        -- [end]
        if datalength(@p_consumer) > 1024
            throw 51001, N'The name of the consumer is longer than 512 characters. Give a shorter one.', 1;
        set @p_consumer = coalesce(@p_consumer, original_login());
        declare @p_token uniqueidentifier = newid();
        declare @most bigint = case @alone when 1 then 1000 else @p_n end;
        declare @swept bit = 0;
        declare @turn int = 0;
        -- [fair]
        declare @p_served bigint =
            coalesce(cast(session_context({ring_of_session}) as bigint), cast(crypt_gen_random(8) as bigint));
        declare @p_last bigint;
        -- [end]
        declare @moved int;
        -- [at_least_once]
        declare @claimed table (
            {claimed_types}
        );
        -- [end]
        -- [at_most_once]
        declare @claimed table (
            {history_types}
        );
        -- [end]
        exec @moved = {queue}__sweep 1000, @most, @p_now;
        if @moved >= 0 set @swept = 1;
        -- [rate]
        declare @granted bigint;
        declare @granted_at datetime2(6);
        exec @granted = {queue}__grant_rate @p_now, @granted_at output;
        set @p_n = case when @p_n < @granted then @p_n else @granted end;
        set @p_now = @granted_at;
        -- [end]
        -- [concurrency]
        declare @slots nvarchar(max);
        exec @p_n = {queue}__lock_slots @p_n, @slots output;
        -- [end]
        -- [limited]
        if @p_n = 0 set @turn = 2;
        -- [end]
        while @turn < 2
        begin
            -- [at_least_once]
            {sql claim into=@claimed};
            -- [end]
            -- [at_most_once]
            {sql take into=@claimed};
            -- [end]
            set @p_n = @p_n - @@rowcount;
            -- [fair]
            -- The last one in turn: of the groups that were served most often, the one farthest round the ring.
            set @p_last = null;
            select top (1) @p_last = given.slot
            from (
                select id, {slot_of_text} as slot, row_number() over (partition by group_key order by id) as number
                from @claimed
            ) as given
            order by given.number desc, case when given.slot > @p_served then 0 else 1 end desc, given.slot desc;
            set @p_served = coalesce(@p_last, @p_served);
            exec sp_set_session_context {ring_of_session}, @p_served;
            -- [end]
            -- [group_rate]
            if exists (select 1 from @claimed) break; -- what it has spent is not noted yet
            -- [end]
            if @p_n <= 0 or @swept = 1 break;
            set @swept = 1;
            set @most = case @alone when 1 then 1000 else @p_n end;
            exec @moved = {queue}__sweep 0, @most, @p_now;
            if @moved = 0 break;
            set @turn = @turn + 1;
        end;
        -- [concurrency]
        declare @ids nvarchar(max) = (select id from @claimed for json path);
        exec {queue}__note_slots @slots, @ids, @p_token;
        -- [end]
        -- [group_rate]
        declare @spending nvarchar(max) = (
            select given.slot, count(*) as number
            from (select {slot_of_text} as slot from @claimed) as given
            group by given.slot
            for json path
        );
        if @spending is not null exec {queue}__spend_group_rates @spending, @p_now;
        -- [end]
        -- [rate]
        set @granted = (select count(*) from @claimed);
        if @granted > 0 exec {queue}__spend_rate @granted, @p_now;
        -- [end]
        -- [at_most_once]
        insert into {history} (
            {history_row}
        )
        select
            {history_row}
        from @claimed;
        select
            {claimed_names with lease_until = cast(null as datetime2(6)) as lease_until},
            @p_token as token
        from @claimed
        order by {order_by};
        -- [end]
        -- [at_least_once]
        select
            {claimed_names},
            @p_token as token
        from @claimed
        order by {order_by};
        -- [end]
        commit transaction;
    end try
    begin catch
        -- XACT_ABORT dooms a caller's transaction, which the caller must end; an INSERT ... EXEC ends its own.
        if @alone = 1 and xact_state() <> 0 rollback transaction;
        throw;
    end catch;
end;
go

-- name: take
-- {queue}_take: remove up to @p_n ready messages (1,000 at the most), for consumers; in the order of the queue. They
-- are finished when the transaction commits.
-- Locks: the messages, until the transaction ends; locked rows are skipped.
-- A rollback puts all of them back, a crash before the commit too.
set ansi_nulls, quoted_identifier on;
go
create or alter procedure {queue}_take
    @p_n bigint = 1,
    @p_consumer nvarchar(max) = null,
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
        if @p_n is null or @p_n not between 1 and 1000
            throw 51001, N'n is not from 1 to 1000. Give another one.', 1;
        if datalength(@p_consumer) > 1024
            throw 51001, N'The name of the consumer is longer than 512 characters. Give a shorter one.', 1;
        set @p_consumer = coalesce(@p_consumer, original_login());
        declare @most bigint = case @alone when 1 then 1000 else @p_n end;
        declare @swept bit = 0;
        declare @turn int = 0;
        -- [fair]
        declare @p_served bigint =
            coalesce(cast(session_context({ring_of_session}) as bigint), cast(crypt_gen_random(8) as bigint));
        declare @p_last bigint;
        -- [end]
        declare @moved int;
        -- [keep]
        declare @claimed table (
            {history_types}
        );
        -- [end]
        -- [none]
        declare @claimed table (
            {claimed_types}
        );
        -- [end]
        exec @moved = {queue}__sweep 1000, @most, @p_now;
        if @moved >= 0 set @swept = 1;
        -- [rate]
        declare @granted bigint;
        declare @granted_at datetime2(6);
        exec @granted = {queue}__grant_rate @p_now, @granted_at output;
        set @p_n = case when @p_n < @granted then @p_n else @granted end;
        set @p_now = @granted_at;
        -- [end]
        -- [rate]
        if @p_n = 0 set @turn = 2;
        -- [end]
        while @turn < 2
        begin
            {sql take token=null into=@claimed};
            set @p_n = @p_n - @@rowcount;
            -- [fair]
            -- The last one in turn: of the groups that were served most often, the one farthest round the ring.
            set @p_last = null;
            select top (1) @p_last = given.slot
            from (
                select id, {slot_of_text} as slot, row_number() over (partition by group_key order by id) as number
                from @claimed
            ) as given
            order by given.number desc, case when given.slot > @p_served then 0 else 1 end desc, given.slot desc;
            set @p_served = coalesce(@p_last, @p_served);
            exec sp_set_session_context {ring_of_session}, @p_served;
            -- [end]
            -- [group_rate]
            if exists (select 1 from @claimed) break; -- what it has spent is not noted yet
            -- [end]
            if @p_n <= 0 or @swept = 1 break;
            set @swept = 1;
            set @most = case @alone when 1 then 1000 else @p_n end;
            exec @moved = {queue}__sweep 0, @most, @p_now;
            if @moved = 0 break;
            set @turn = @turn + 1;
        end;
        -- [group_rate]
        declare @spending nvarchar(max) = (
            select given.slot, count(*) as number
            from (select {slot_of_text} as slot from @claimed) as given
            group by given.slot
            for json path
        );
        if @spending is not null exec {queue}__spend_group_rates @spending, @p_now;
        -- [end]
        -- [rate]
        set @granted = (select count(*) from @claimed);
        if @granted > 0 exec {queue}__spend_rate @granted, @p_now;
        -- [end]
        -- [grouped]
        insert into {turns} (group_key)
        select convert(varbinary(1020), group_key)
        from @claimed
        group by convert(varbinary(1020), group_key)
        order by min(id);
        -- [end]
        -- [keep]
        insert into {history} (
            {history_row}
        )
        select
            {history_row}
        from @claimed;
        select
            {claimed_names with lease_until = cast(null as datetime2(6)) as lease_until}
        from @claimed
        order by {order_by};
        -- [end]
        -- [none]
        select
            {claimed_names}
        from @claimed
        order by {order_by};
        -- [end]
        commit transaction;
    end try
    begin catch
        -- XACT_ABORT dooms a caller's transaction, which the caller must end; an INSERT ... EXEC ends its own.
        if @alone = 1 and xact_state() <> 0 rollback transaction;
        throw;
    end catch;
end;
go
